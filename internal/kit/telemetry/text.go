package telemetry

import (
	"bufio"
	"io"
	"math"
	"strconv"
	"strings"
)

// TextType is the content type of what WriteText writes.
const TextType = "text/plain; version=0.0.4; charset=utf-8"

// The kinds of metrics, by their names in the text format.
const (
	KindCounter   = "counter"
	KindGauge     = "gauge"
	KindHistogram = "histogram"
	kindSummary   = "summary"
)

// Family is one metric with its numbers, ready to be written.
type Family struct {
	Kind, Name string
	Help       string // "" for none
	Samples    []Sample
}

// Sample is one number.
type Sample struct {
	Suffix string // of the family's name, such as _sum
	Labels []Pair
	Value  float64
}

// Pair is a label of a sample.
type Pair struct{ Name, Value string }

// HistogramSamples are the numbers of one histogram: counts are of the observations up to each bound, cumulative.
func HistogramSamples(labels []Pair, bounds, counts []float64, count, sum float64) []Sample {
	var list []Sample
	bucket := func(bound, n float64) {
		le := Pair{"le", number(bound)}
		list = append(list, Sample{Suffix: "_bucket", Labels: append(labels[:len(labels):len(labels)], le), Value: n})
	}
	for i, bound := range bounds {
		bucket(bound, counts[i])
	}
	bucket(math.Inf(1), count)
	return append(list, Sample{Suffix: "_sum", Labels: labels, Value: sum}, Sample{Suffix: "_count", Labels: labels, Value: count})
}

// WriteText writes families in Prometheus' text format 0.0.4, in their order.
func WriteText(w io.Writer, families []Family) error {
	out := bufio.NewWriter(w) // keeps its first error for Flush
	for _, f := range families {
		if f.Help != "" {
			writeStrings(out, "# HELP ", f.Name, " ", helpEscapes.Replace(f.Help), "\n")
		}
		writeStrings(out, "# TYPE ", f.Name, " ", f.Kind, "\n")
		for _, s := range f.Samples {
			writeStrings(out, f.Name, s.Suffix)
			writeLabels(out, s.Labels)
			writeStrings(out, " ", number(s.Value), "\n")
		}
	}
	return out.Flush()
}

func writeLabels(out *bufio.Writer, labels []Pair) {
	for i, l := range labels {
		before := ","
		if i == 0 {
			before = "{"
		}
		writeStrings(out, before, l.Name, `="`, labelEscapes.Replace(l.Value), `"`)
	}
	if len(labels) > 0 {
		writeStrings(out, "}")
	}
}

func writeStrings(out *bufio.Writer, list ...string) {
	for _, s := range list {
		_, _ = out.WriteString(s)
	}
}

// What the format escapes. Replacers build their tables when they are used first.
var (
	helpEscapes  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	labelEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
