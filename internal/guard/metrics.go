// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics are what a guard counts and times.
type Metrics struct {
	registry *prometheus.Registry

	reviews  *prometheus.CounterVec
	duration prometheus.Histogram
	bursts   prometheus.Counter
	expires  prometheus.Gauge
}

// NewMetrics returns metrics of a guard that says by judging whether it does.
func NewMetrics(judging func() bool) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		reviews: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_guard_reviews_total",
			Help: "Deletes that the API server asked about, by verdict: allowed, warned, denied, overridden, controller, unjudged.",
		}, []string{"verdict"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "fairlead_guard_review_duration_seconds",
			Help:    "How long it took to judge a delete.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 15),
		}),
		bursts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fairlead_guard_bursts_total",
			Help: "How often one user deleted many objects in a row.",
		}),
		expires: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fairlead_guard_certificate_expiry_timestamp_seconds",
			Help: "When the serving certificate ends. After that no delete is judged, and none is held up.",
		}),
	}
	// What never happened shows as 0.
	for _, verdict := range verdicts() {
		m.reviews.WithLabelValues(verdict)
	}
	m.registry.MustRegister(m.reviews, m.duration, m.bursts, m.expires,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "fairlead_guard_judging",
			Help: "1 while the guard has what it judges by, 0 while it lets everything pass.",
		}, func() float64 {
			if judging() {
				return 1
			}
			return 0
		}),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Handler serves the metrics.
func (m *Metrics) Handler(log *slog.Logger) http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(log.Handler(), slog.LevelError),
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: 4,
	})
}

// CertificateExpires takes when the serving certificate ends.
func (m *Metrics) CertificateExpires(at time.Time) { m.expires.Set(float64(at.Unix())) }
