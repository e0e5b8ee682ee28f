// SPDX-License-Identifier: Apache-2.0

// Package metrics holds what the agent counts and times, in the form that
// Prometheus reads.
//
// Each metric has one place here that names it, says what it means, and which
// of kube-proxy's it stands for (R32). What happens is told to Metrics as it
// happens; what merely is, such as the use of a map, is read when somebody
// asks. The package decides nothing, and knows neither Kubernetes nor the
// kernel.
package metrics

import (
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics takes what happens. Its methods may be called from any goroutine.
type Metrics struct {
	registry *prometheus.Registry

	syncDuration  prometheus.Histogram
	syncFailures  prometheus.Counter
	programming   *prometheus.HistogramVec
	refused       *prometheus.CounterVec
	healthAnswers *prometheus.CounterVec
	retention     *prometheus.CounterVec
	moves         prometheus.Counter
}

// New returns metrics that read facts whenever somebody asks for them.
func New(version string, facts func() (Facts, error)) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		syncDuration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "fairlead_sync_duration_seconds",
			Help:    help("How long it took to write a batch of changes to the kernel", "sync_proxy_rules_duration_seconds"),
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 18),
		}),
		syncFailures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fairlead_sync_failures_total",
			Help: help("Batches of which not everything could be written; what is left is tried again", "sync_proxy_rules_nftables_sync_failures_total"),
		}),
		programming: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "fairlead_network_programming_duration_seconds",
			Help:    help("From the change of a pod or Service, as its EndpointSlice says, until the kernel has it", "network_programming_duration_seconds"),
			Buckets: programmingBuckets(),
		}, []string{"ip_family"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_refused_connections_total",
			Help: help("Connections and packets to Services that were refused or dropped since the agent started"),
		}, []string{"reason"}),
		healthAnswers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_health_answers_total",
			Help: help("Answers of /healthz and /livez by HTTP status", "proxy_healthz_total", "proxy_livez_total"),
		}, []string{"path", "code"}),
		retention: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_retention_events_total",
			Help: help("Steps of retentions, by what became of a backend set: retained, restored, verified, foreign, ended"),
		}, []string{"what"}),
		moves: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fairlead_apiserver_moves_total",
			Help: help("How often the agent turned from one endpoint of the API server to another"),
		}),
	}
	// What never happened shows as 0.
	for _, what := range retentionSteps {
		m.retention.WithLabelValues(what)
	}
	m.registry.MustRegister(m.syncDuration, m.syncFailures, m.programming, m.refused, m.healthAnswers, m.retention, m.moves,
		newCollector(list, facts),
		newCollector(buildInfo, func() (string, error) { return version, nil }),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// help writes what a metric means and which of kube-proxy's it stands for.
func help(meaning string, counterparts ...string) string {
	names := "none"
	if len(counterparts) > 0 {
		names = "kubeproxy_" + strings.Join(counterparts, ", kubeproxy_")
	}
	return fmt.Sprintf("%s. kube-proxy: %s.", meaning, names)
}

// programmingBuckets are fine where this proxy is, and those of kube-proxy
// where others are, so that charts can be compared.
func programmingBuckets() []float64 {
	buckets := []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5}
	for s := 1.0; s < 10; s++ {
		buckets = append(buckets, s)
	}
	return append(buckets, 10, 15, 20, 30, 45, 60, 90, 120, 180, 240, 300)
}

// Handler serves the metrics. What cannot be read is left out of an answer,
// and logged.
func (m *Metrics) Handler(log *slog.Logger) http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(log.Handler(), slog.LevelError),
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: 4,
	})
}

// Synced notes a batch.
func (m *Metrics) Synced(took time.Duration, failed bool) {
	m.syncDuration.Observe(took.Seconds())
	if failed {
		m.syncFailures.Inc()
	}
}

// Programmed notes that the kernel has what changed in the cluster some time
// ago. Clocks of two machines differ: less than nothing is nothing.
func (m *Metrics) Programmed(family string, ago time.Duration) {
	m.programming.WithLabelValues(family).Observe(max(0, ago.Seconds()))
}

// Refused notes a refused connection.
func (m *Metrics) Refused(reason string) { m.refused.WithLabelValues(reason).Inc() }

// Answered notes an answer about the proxy's own health.
func (m *Metrics) Answered(path string, status int) {
	m.healthAnswers.WithLabelValues(path, strconv.Itoa(status)).Inc()
}

// Retained notes a step of a retention.
func (m *Metrics) Retained(what string) { m.retention.WithLabelValues(what).Inc() }

// Moved notes that another endpoint of the API server is in use.
func (m *Metrics) Moved() { m.moves.Inc() }

var buildInfo = []metric[string]{{
	Name: "fairlead_build_info", Help: help("1, with the version of the agent"), Type: prometheus.GaugeValue, Labels: []string{"version"},
	Read: func(version string, emit func(float64, ...string)) { emit(1, version) },
}}
