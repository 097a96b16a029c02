package telemetry

import (
	"fmt"
	"io"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
)

// TextType is the content type of the text format 0.0.4.
const TextType = "text/plain; version=0.0.4; charset=utf-8"

// The kinds of readings, by their names in the text format.
const (
	KindCounter   = "counter"
	KindGauge     = "gauge"
	KindHistogram = "histogram"
)

// Reading is a number, or a histogram, as a process says it of itself.
type Reading struct {
	Kind, Name, Help string
	Labels           map[string]string
	Value            float64   // of all but histograms
	Bounds, Counts   []float64 // of a histogram: observations up to each bound, cumulative
	Count, Sum       float64   // of all its observations
}

// WriteText writes readings in the text format 0.0.4. All of one name have the same kind and help.
func WriteText(w io.Writer, list []Reading) error {
	r := prometheus.NewRegistry()
	r.MustRegister(readings(list))
	return writeText(w, r)
}

func writeText(w io.Writer, g prometheus.Gatherer) error {
	families, err := g.Gather()
	if err != nil {
		return fmt.Errorf("gather metrics: %w", err)
	}
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(w, f); err != nil {
			return fmt.Errorf("write metric %s: %w", f.GetName(), err)
		}
	}
	return nil
}

// readings collects what it lists.
type readings []Reading

// Describe names nothing in advance, since the next list may hold other names.
func (readings) Describe(chan<- *prometheus.Desc) {}

// Collect gives the list to the library.
func (list readings) Collect(to chan<- prometheus.Metric) {
	for _, r := range list {
		to <- r.metric()
	}
}

func (r Reading) metric() prometheus.Metric {
	desc := prometheus.NewDesc(r.Name, r.Help, nil, r.Labels)
	var m prometheus.Metric
	var err error
	switch r.Kind {
	case KindHistogram:
		buckets := make(map[float64]uint64, len(r.Bounds))
		for i, bound := range r.Bounds {
			buckets[bound] = uint64(r.Counts[i])
		}
		m, err = prometheus.NewConstHistogram(desc, uint64(r.Count), r.Sum, buckets)
	case KindCounter:
		m, err = prometheus.NewConstMetric(desc, prometheus.CounterValue, r.Value)
	default:
		m, err = prometheus.NewConstMetric(desc, prometheus.GaugeValue, r.Value)
	}
	if err != nil {
		return prometheus.NewInvalidMetric(desc, err)
	}
	return m
}
