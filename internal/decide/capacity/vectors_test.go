package capacity

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/label"
	"kici/internal/vectors"
)

func arg[T any](t *testing.T, args []json.RawMessage, i int) (v T) {
	t.Helper()
	if i >= len(args) {
		return v
	}
	if err := json.Unmarshal(args[i], &v); err != nil {
		t.Fatalf("decode %s: %v", args[i], err)
	}
	return v
}

// entry is a scaler as the vectors write it.
type entry struct {
	Name            string
	LabelSets       []struct{ Labels []string }
	MandatoryLabels []string
}

func (e entry) pool() Pool {
	p := Pool{Name: e.Name}
	for _, set := range e.LabelSets {
		p.Sets = append(p.Sets, Set{Labels: set.Labels, Gate: e.MandatoryLabels})
	}
	return p
}

func (e entry) scaler() Scaler {
	s := Scaler{Name: e.Name}
	for _, set := range e.LabelSets {
		s.Sets = append(s.Sets, set.Labels)
	}
	return s
}

func TestVectorsScalerLabels(t *testing.T) {
	for _, c := range vectors.LoadAs[struct {
		Name, Note, Fn string
		Args           []json.RawMessage
		Expected       struct{ Result json.RawMessage }
	}](t, "scaler-labels.json") {
		if c.Fn == "normalizeRunsOn" { // a function of the author's library, written in TypeScript
			continue
		}
		t.Run(c.Name, func(t *testing.T) { check(t, call(t, c.Fn, c.Args), c.Expected.Result) })
	}
}

// TestVectorsLabels runs the choice of a scaler among the vectors about labels; the others stand in core/label.
func TestVectorsLabels(t *testing.T) {
	for _, c := range vectors.Load(t, "labels.json") {
		in := arg[struct {
			Fn   string
			Args []json.RawMessage
		}](t, []json.RawMessage{c.Input}, 0)
		if in.Fn == "backend" {
			t.Run(c.Name, func(t *testing.T) { check(t, choose(t, in.Args), c.Expected) })
		}
	}
}

func check(t *testing.T, got any, expected json.RawMessage) {
	t.Helper()
	raw, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	var want, have any
	if err := json.Unmarshal(expected, &want); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &have); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// call runs one function of the vectors and shapes its result as they do.
func call(t *testing.T, fn string, args []json.RawMessage) any {
	texts := func(i int) []string { return arg[[]string](t, args, i) }
	text := func(i int) string { return arg[string](t, args, i) }
	switch fn {
	case "normalizeLabelSet":
		return label.SetKey(texts(0))
	case "labelSetsMatch":
		return label.SameSet(texts(0), texts(1))
	case "detectLabelSetOverlaps":
		return overlaps(arg[[]entry](t, args, 0))
	case "findBackendForLabels":
		return choose(t, args)
	case "deriveOsArchLabels":
		return label.Machine(text(0), text(1))
	case "resolveRoleLabels":
		return label.Roles(arg[*[]string](t, args, 0))
	case "scalerAgentLabels":
		return label.Spawned(texts(0), text(1), text(2), arg[*[]string](t, args, 3))
	case "isSelfReportedLabel":
		return label.SelfReportable(text(0))
	case "resolvePool":
		return resolve(t, args)
	case "gateSatisfied":
		return label.GateOpen(texts(1), texts(0))
	}
	t.Fatalf("unknown function %q", fn)
	return nil
}

func overlaps(entries []entry) any {
	var scalers []Scaler
	for _, e := range entries {
		scalers = append(scalers, e.scaler())
	}
	out := []map[string]string{}
	for _, o := range Overlaps(scalers) {
		out = append(out, map[string]string{"labels": o.Key, "scaler1": o.First, "scaler2": o.Second})
	}
	return out
}

func choose(t *testing.T, args []json.RawMessage) any {
	var pools []Pool
	for _, e := range arg[[]entry](t, args, 1) {
		pools = append(pools, e.pool())
	}
	labels, exclude := arg[[]string](t, args, 0), arg[[]string](t, args, 2)
	pool, set, ok := Choose(pools, labels, exclude)
	if Routable(label.Selector{Labels: labels, Exclude: exclude}, pools) != ok {
		t.Errorf("routable: %v", !ok)
	}
	if !ok {
		return nil
	}
	return map[string]any{"scalerName": pools[pool].Name, "labelSetIndex": set}
}

func resolve(t *testing.T, args []json.RawMessage) any {
	in := arg[struct {
		Type                    string
		Platform                *Platform
		Host                    Platform // in Node's words
		Labels, MandatoryLabels []string
	}](t, args, 0)
	s := Scaler{Name: "p", Backend: in.Type, Platform: in.Platform, Mandatory: in.MandatoryLabels, Sets: [][]string{in.Labels}}
	return map[string]any{
		"osArchLabels": s.machine(in.Host.OS, in.Host.Arch),
		"taints":       append([]string{}, s.platform(in.Host.OS, in.Host.Arch).tokens()...),
		"gate":         append([]string{}, s.Pool(in.Host.OS, in.Host.Arch).Sets[0].Gate...),
		"warn":         len(s.Undeclared()) > 0,
	}
}
