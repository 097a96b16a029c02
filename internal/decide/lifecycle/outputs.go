package lifecycle

import (
	"encoding/json"
	"slices"
	"strings"

	"kici/internal/core/ci"
	"kici/internal/kit/collate"
)

// Upstream is a job whose outputs and end a dependant is told. Outputs is {step: {key: value}}, or nothing.
type Upstream struct {
	Name    string // expanded
	Base    string
	Kind    ci.VariantKind
	Label   string // of a host child
	Status  ci.JobStatus
	Outputs json.RawMessage
}

// UpstreamStatuses is every upstream's end by its expanded name, as a dispatch carries it; nil when there is none. An
// agent that does not know the status unroutable would drop the whole dispatch for it, so it is told a timeout.
func UpstreamStatuses(rows []Upstream, knowsUnroutable bool) map[string]ci.JobStatus {
	var out map[string]ci.JobStatus
	for _, r := range rows {
		if r.Status == "" {
			continue
		}
		if out == nil {
			out = make(map[string]ci.JobStatus, len(rows))
		}
		out[r.Name] = r.Status
		if r.Status == ci.JobUnroutable && !knowsUnroutable {
			out[r.Name] = ci.JobTimedOutStale
		}
	}
	return out
}

// UpstreamOutputs gives, by base name, what a dispatch carries of upstream outputs; nil when there is nothing. A plain
// job's outputs stand as they are; matrix children stand by their suffix, and merged, where the last child in name order
// wins; host children stand by host, with a summary.
func UpstreamOutputs(bases []string, rows []Upstream) (map[string]json.RawMessage, error) {
	var out map[string]json.RawMessage
	for _, base := range bases {
		value, err := outputsOf(base, rows)
		if err != nil {
			return nil, err
		}
		if value == nil {
			continue
		}
		if out == nil {
			out = make(map[string]json.RawMessage, len(bases))
		}
		out[base] = value
	}
	return out, nil
}

func outputsOf(base string, rows []Upstream) (json.RawMessage, error) {
	var children []Upstream
	for _, r := range rows {
		switch {
		case r.Base != base:
		case r.Name == base:
			return r.Outputs, nil
		default:
			children = append(children, r)
		}
	}
	if len(children) == 0 {
		return nil, nil
	}
	slices.SortStableFunc(children, func(a, b Upstream) int { return collate.Compare(a.Name, b.Name) })
	if children[0].Kind == ci.VariantHost {
		return hostOutputs(children)
	}
	return matrixOutputs(children)
}

// suffix is what stands in the parentheses of a child's name.
func suffix(u Upstream) string {
	return strings.TrimSuffix(strings.TrimPrefix(u.Name, u.Base+" ("), ")")
}

func matrixOutputs(children []Upstream) (json.RawMessage, error) {
	byMatrix := map[string]json.RawMessage{}
	merged := map[string]json.RawMessage{}
	for _, c := range children {
		if c.Outputs == nil {
			continue
		}
		byMatrix[suffix(c)] = c.Outputs
		steps, err := stepsOf(c)
		if err != nil {
			return nil, err
		}
		for step, value := range steps {
			merged[step] = value
		}
	}
	if len(byMatrix) == 0 {
		return nil, nil
	}
	return json.Marshal(map[string]any{"byMatrix": byMatrix, "merged": merged})
}

func hostOutputs(children []Upstream) (json.RawMessage, error) {
	byHost := map[string]json.RawMessage{}
	succeeded, failed := []string{}, []string{}
	outputs := map[string][]json.RawMessage{}
	for _, c := range children {
		host := textOr(c.Label, suffix(c))
		switch {
		case c.Status == ci.JobSuccess:
			succeeded = append(succeeded, host)
		case c.Status != ci.JobSkipped:
			failed = append(failed, host)
		}
		steps, err := stepsOf(c)
		if err != nil {
			return nil, err
		}
		for step, value := range steps {
			outputs[step] = append(outputs[step], value)
		}
		if byHost[host] = c.Outputs; c.Outputs == nil {
			byHost[host] = json.RawMessage("{}")
		}
	}
	return json.Marshal(map[string]any{"byHost": byHost, "summary": map[string]any{
		"succeededHosts": succeeded, "failedHosts": failed, "outputs": outputs,
	}})
}

func stepsOf(u Upstream) (map[string]json.RawMessage, error) {
	if u.Outputs == nil {
		return nil, nil
	}
	var steps map[string]json.RawMessage
	return steps, json.Unmarshal(u.Outputs, &steps)
}
