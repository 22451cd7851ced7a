package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/client"
)

// The alert rules and the dashboard are about metrics that a daemon has. Prometheus' own
// checker reads the rules and the metrics where it is installed.
func TestAlertsAndDashboardNameMetricsThatExist(t *testing.T) {
	t.Parallel()
	dir := filepath.Join("..", "..", "examples", "monitoring")
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(read("dashboard.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	expressions := map[string]string{}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			expressions["dashboard: "+p.Title+" "+target.Expr] = target.Expr
		}
	}
	for _, rule := range regexp.MustCompile(`(?m)^ +expr: (.*)$`).FindAllStringSubmatch(read("alerts.yaml"), -1) {
		expressions["alerts: "+rule[1]] = rule[1]
	}
	if len(expressions) < 24 {
		t.Errorf("%d expressions", len(expressions))
	}

	d := startMeasured(t)
	c := d.open(t, newActor(t, "load", "root", "root"))
	if _, err := c.Enqueue(t.Context(), client.NewTask{Queue: "q", Payload: 1}); err != nil {
		t.Fatal(err)
	}
	families := d.scrape()
	labels := map[string][]string{"up": {"job"}} // which Prometheus makes itself
	for name, family := range families {
		for _, m := range family.Metric {
			for _, l := range m.Label {
				labels[name] = append(labels[name], l.GetName())
			}
		}
		if _, ok := labels[name]; !ok {
			labels[name] = nil
		}
	}
	metric := regexp.MustCompile(`\b(leasehold_\w+|process_\w+|go_\w+|up)\b(\{[^}]*\})?`)
	label := regexp.MustCompile(`(\w+)(?:=~|=)`)
	for where, expr := range expressions {
		found := metric.FindAllStringSubmatch(expr, -1)
		if len(found) == 0 {
			t.Errorf("%s names no metric", where)
		}
		for _, f := range found {
			has, ok := labels[strings.TrimSuffix(f[1], "_bucket")]
			if !ok {
				t.Errorf("%s: there is no %s", where, f[1])
			}
			for _, l := range label.FindAllStringSubmatch(f[2], -1) {
				if l[1] != "instance" && !slices.Contains(has, l[1]) {
					t.Errorf("%s: %s has no label %s", where, f[1], l[1])
				}
			}
		}
	}

	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Log("promtool, of Debian's package prometheus, is not installed: it checks neither the rules nor the metrics")
		return
	}
	for _, args := range [][]string{{"check", "rules", "alerts.yaml"}, {"check", "config", "--syntax-only", "prometheus.yaml"}, {"check", "metrics"}} {
		cmd := exec.CommandContext(t.Context(), promtool, args...)
		cmd.Dir = dir
		_, metrics := d.get(d.scraped, "")
		cmd.Stdin = metrics // which check metrics reads
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
		metrics.Close()
	}
}
