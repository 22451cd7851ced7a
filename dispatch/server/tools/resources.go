package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/queue"
	"github.com/leasehold/leasehold/registry"
)

// A Resource is something that an agent may read and subscribe to: the leases
// of its run, those of a layer that it reads, or a queue. Tools return the same
// contents.
type Resource dispatch.Topic

// URIs of resources. That of a layer has the path of its lead, with / or →
// between the names.
const (
	runURI   = "lease://run"
	layerURI = "lease://layer/"
	queueURI = "queue://"
)

const (
	resourceType = "application/json"

	// resourceLeases is the greatest number of leases in a resource, and
	// listedResources that of queues or layers in a list of resources.
	// lease_list and queue_stats return all of them.
	resourceLeases  = 200
	listedResources = 100
)

// ParseResource parses the URI of a resource. It does not check whether the
// resource exists.
func ParseResource(uri string) (r Resource, err error) {
	wrong := &registry.ArgumentError{Argument: "uri", Problem: fmt.Sprintf("must be %s, %s<path of its lead> or %s<name>, and not %.100q", runURI, layerURI, queueURI, uri)}
	if strings.TrimSuffix(uri, "/") == runURI {
		return r, nil
	}
	if path, ok := strings.CutPrefix(uri, layerURI); ok {
		path, err = url.PathUnescape(path)
		if r.Layer = dispatch.PathOf(strings.Trim(path, "/")); err != nil || r.Layer == "" {
			return Resource{}, wrong
		}
		return r, nil
	}
	name, ok := strings.CutPrefix(uri, queueURI)
	if r.Queue = strings.TrimSuffix(name, "/"); !ok || queue.CheckName("uri", r.Queue) != nil {
		return Resource{}, wrong
	}
	return r, nil
}

func (r Resource) uri() string {
	switch {
	case r.Queue != "":
		return queueURI + r.Queue
	case r.Layer == "":
		return runURI
	}
	names := strings.Split(r.Layer, dispatch.Separator)
	for i, name := range names {
		names[i] = url.PathEscape(name)
	}
	return layerURI + strings.Join(names, "/")
}

// Read returns the current contents of the resource, if the session may read
// it.
func (r Resource) Read(ctx context.Context, se *dispatch.Session) (string, error) {
	object, err := r.read(ctx, se)
	if err != nil {
		return "", err
	}
	return string(mustJSON(object)), nil
}

func (r Resource) read(ctx context.Context, se *dispatch.Session) (any, error) {
	if r.Queue != "" {
		tasks, err := se.Tasks()
		if err != nil {
			return nil, err
		}
		stats, _, err := tasks.Stats(ctx, r.Queue, "", 1)
		if errors.Is(err, queue.ErrNoQueue) { // it has no tasks, or none yet
			stats, err = []queue.Stats{{Queue: r.Queue}}, nil
		}
		if err != nil {
			return nil, err
		}
		return countsOf(stats, false).Queues[0], nil
	}
	q := dispatch.LeaseQuery{Scopes: []dispatch.Scope{dispatch.RunScope}, Limit: resourceLeases}
	page, err := se.Leases(ctx, q)
	if r.Layer != "" {
		page, err = se.LayerLeases(ctx, r.Layer, q)
	}
	return leaseListOf(page, se.ID()), err
}

// ListResources returns the resources of a session that belong to the given
// groups of tools.
func ListResources(ctx context.Context, se *dispatch.Session, groups []string) ([]mcp.Resource, error) {
	list := []mcp.Resource{}
	add := func(r Resource, name, description string) {
		list = append(list, mcp.NewResource(r.uri(), name, mcp.WithResourceDescription(description), mcp.WithMIMEType(resourceType)))
	}
	wants := func(group string) bool { return groups == nil || slices.Contains(groups, group) }
	if wants("leases") {
		add(Resource{}, "leases of the run", "Who holds what across the run, and who waits for it.")
	}
	if wants("layer") {
		layers, err := se.ReadableLayers(ctx, listedResources)
		if err != nil {
			return nil, err
		}
		for _, path := range layers {
			add(Resource{Layer: path}, "leases in the layer of "+path, "Who holds what in this layer, and who waits for it.")
		}
	}
	if wants("queue") {
		tasks, err := se.Tasks()
		if err != nil {
			return nil, err
		}
		queues, _, err := tasks.Stats(ctx, "", "", listedResources)
		if err != nil {
			return nil, err
		}
		for _, q := range queues {
			add(Resource{Queue: q.Queue}, "queue "+q.Queue, "How many tasks the queue has, by state.")
		}
	}
	return list, nil
}

// ResourceTemplates returns the URIs of resources that may not be in a list,
// such as a layer without leases or a queue without tasks.
func ResourceTemplates() []mcp.ResourceTemplate {
	describe := func(uri, name, description string) mcp.ResourceTemplate {
		return mcp.NewResourceTemplate(uri, name, mcp.WithTemplateDescription(description), mcp.WithTemplateMIMEType(resourceType))
	}
	return []mcp.ResourceTemplate{
		describe(layerURI+"{+path}", "leases in a layer", "Who holds what in the layer of the lead at this path, such as root or S1/S2, and who waits for it; of a layer that you read."),
		describe(queueURI+"{name}", "queue", "How many tasks a queue has, by state."),
	}
}

// ReadResult returns the answer to a read of a resource, with the requested
// URI.
func ReadResult(uri, text string) json.RawMessage {
	return mustJSON(mcp.ReadResourceResult{Contents: []mcp.ResourceContents{
		mcp.TextResourceContents{URI: uri, MIMEType: resourceType, Text: text},
	}})
}
