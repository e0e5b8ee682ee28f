// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metric is one metric that is read off a T, such as a struct of counters,
// each time somebody asks.
type metric[T any] struct {
	Name   string
	Help   string
	Type   prometheus.ValueType
	Labels []string
	// Read calls emit once for each combination of label values.
	Read func(from T, emit func(value float64, labels ...string))
}

// value is a metric without labels.
func value[T any](name, help string, kind prometheus.ValueType, read func(T) float64) metric[T] {
	return metric[T]{Name: name, Help: help, Type: kind, Read: func(from T, emit func(float64, ...string)) { emit(read(from)) }}
}

// newCollector returns a collector that reads a T once per scrape, for all its
// metrics. An error leaves them out of that scrape and stands in its log.
func newCollector[T any](list []metric[T], read func() (T, error)) prometheus.Collector {
	c := &collector[T]{list: list, read: read}
	for _, m := range list {
		c.descs = append(c.descs, prometheus.NewDesc(m.Name, m.Help, m.Labels, nil))
	}
	return c
}

type collector[T any] struct {
	list  []metric[T]
	descs []*prometheus.Desc // of each metric
	read  func() (T, error)
}

// Describe implements prometheus.Collector.
func (c *collector[T]) Describe(out chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector[T]) Collect(out chan<- prometheus.Metric) {
	from, err := c.read()
	if err != nil {
		for _, d := range c.descs {
			out <- prometheus.NewInvalidMetric(d, err)
		}
		return
	}
	for i, m := range c.list {
		m.Read(from, func(value float64, labels ...string) {
			out <- prometheus.MustNewConstMetric(c.descs[i], m.Type, value, labels...)
		})
	}
}
