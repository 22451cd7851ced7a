package daemon

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	wire "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/build"
	"github.com/leasehold/leasehold/dispatch/traces"
)

// openTraces exports spans to the collector that OpenTelemetry's variables name. If they
// are not set or invalid, it exports nothing. flush sends the remaining spans.
//
// OpenTelemetry's own exporter is not used: it would add nine megabytes of gRPC to send
// one body by POST.
func openTraces(log zerolog.Logger) (tracer traces.Tracer, flush func()) {
	c, err := collectorOf(os.Getenv)
	if err != nil {
		log.Warn().Err(err).Msg("no traces are exported")
	}
	if c == nil {
		return traces.Tracer{}, func() {}
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		log.Warn().Err(err).Msg("traces")
	}))
	about := resource.NewSchemaless(attribute.String("service.name", "leasehold"), attribute.String("service.version", build.Version()))
	if merged, err := resource.Merge(about, resource.Environment()); err == nil {
		about = merged
	}
	exporter := otlptrace.NewUnstarted(c)
	provider := trace.NewTracerProvider(trace.WithBatcher(exporter), trace.WithResource(about))
	log.Info().Str("to", c.url.Redacted()).Msg("exports traces")
	return traces.New(provider), func() {
		ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			log.Warn().Err(err).Msg("the last traces were not exported")
		}
		_ = c.Stop(ctx)
	}
}

// flushTimeout limits how long the daemon waits for a collector when it ends.
const flushTimeout = 3 * time.Second

// A collector receives spans by OTLP over HTTP, in protobuf.
type collector struct {
	url     *url.URL
	header  http.Header
	timeout time.Duration // for one batch, including all attempts
	http    *http.Client
}

// collectorOf reads the variables of OpenTelemetry's OTLP exporter. It returns nil if they
// name no collector.
func collectorOf(env func(string) string) (*collector, error) {
	const prefix = "OTEL_EXPORTER_OTLP_"
	of := func(name string) (value, variable string) {
		variable = prefix + "TRACES_" + name
		if value = env(variable); value == "" {
			variable = prefix + name
			value = env(variable)
		}
		return value, variable
	}
	to, variable := of("ENDPOINT")
	if to == "" || strings.EqualFold(env("OTEL_SDK_DISABLED"), "true") || env("OTEL_TRACES_EXPORTER") == "none" {
		return nil, nil
	}
	if exporter := cmp.Or(env("OTEL_TRACES_EXPORTER"), "otlp"); exporter != "otlp" {
		return nil, fmt.Errorf("OTEL_TRACES_EXPORTER is %q: must be otlp or none", exporter)
	}
	if protocol, name := of("PROTOCOL"); cmp.Or(protocol, "http/protobuf") != "http/protobuf" {
		return nil, fmt.Errorf("%s is %q: must be http/protobuf, which every collector takes", name, protocol)
	}
	u, err := url.Parse(to)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%s must be a URL such as http://localhost:4318", variable)
	}
	if variable == prefix+"ENDPOINT" {
		u = u.JoinPath("v1/traces")
	}
	c := &collector{url: u, header: make(http.Header), timeout: 10 * time.Second}
	c.header.Set("Content-Type", "application/x-protobuf")
	headers, variable := of("HEADERS")
	for pair := range strings.SplitSeq(headers, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if name = strings.TrimSpace(name); !ok || err != nil || name == "" {
			return nil, fmt.Errorf("%s must be name=value,…, percent-encoded", variable) // without the value, which may be a secret
		}
		c.header.Set(name, value)
	}
	if text, name := of("TIMEOUT"); text != "" {
		ms, err := strconv.ParseUint(text, 10, 31)
		if err != nil || ms == 0 {
			return nil, fmt.Errorf("%s is %q: must be milliseconds, from 1", name, text)
		}
		c.timeout = time.Duration(ms) * time.Millisecond
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if file, name := of("CERTIFICATE"); file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
		if !transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s: %s has no certificate in PEM", name, file)
		}
	}
	c.http = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return c, nil
}

func (c *collector) Start(context.Context) error { return nil }

func (c *collector) Stop(context.Context) error {
	c.http.CloseIdleConnections()
	return nil
}

// UploadTraces sends a batch, and retries as long as the collector allows it.
func (c *collector) UploadTraces(ctx context.Context, spans []*wire.ResourceSpans) error {
	// The encoding is that of an ExportTraceServiceRequest, whose package needs gRPC.
	body, err := proto.Marshal(&wire.TracesData{ResourceSpans: spans})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	for wait := 500 * time.Millisecond; ; wait *= 2 {
		after, err := c.send(ctx, body)
		if err == nil || after < 0 {
			return err
		}
		retry := time.NewTimer(max(after, wait))
		select {
		case <-retry.C:
		case <-ctx.Done():
			retry.Stop()
			return err
		}
	}
}

// send sends a batch once. after is the time to wait before sending it again. If it is
// negative, the batch must not be sent again.
func (c *collector) send(ctx context.Context, body []byte) (after time.Duration, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url.String(), bytes.NewReader(body))
	if err != nil {
		return -1, err
	}
	r.Header = c.header
	resp, err := c.http.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection can be used again
	switch resp.StatusCode {
	case http.StatusOK, http.StatusAccepted, http.StatusNoContent:
		return 0, nil
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		secs, _ := strconv.ParseUint(resp.Header.Get("Retry-After"), 10, 16)
		return time.Duration(secs) * time.Second, errors.New("the collector answers " + resp.Status)
	}
	return -1, errors.New("the collector answers " + resp.Status)
}
