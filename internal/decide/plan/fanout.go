package plan

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"kici/internal/core/ci"
	"kici/internal/core/label"
	"kici/internal/core/lockfile"
	"kici/internal/kit/collate"
)

// Child is one materialised job of a base job: the only one, or one of its fan-out.
type Child struct {
	Name        string
	VariantKind string         // "", VariantMatrix or VariantHost
	Values      lockfile.Pairs // of a matrix child, in the order that its name shows
	Host        *Host          // of a host child
	Failure     string         // of a host child: why it can never run; "" when it can
	BringUp     bool           // of a host child: its host has no agent yet
	Label       string         // the part of Name that tells it from its siblings
	Index       int            // rank among the children by collation of names, of host children by agent id
	Total       int            // 0: no position, since there are no siblings
}

// Host is one host of a fan-out, from the roster.
type Host struct {
	AgentID  string
	Name     string // unique in the fan-out
	Labels   []string
	Platform string
	Arch     string
}

// FanoutError says why a job cannot be multiplied. Its text is for the author.
type FanoutError struct{ Message string }

func (e *FanoutError) Error() string { return e.Message }

func fanoutError(format string, args ...any) error {
	return &FanoutError{Message: fmt.Sprintf(format, args...)}
}

// maxProduct bounds what is multiplied out before excludes are applied, so that a hostile matrix costs nothing.
const maxProduct = 1 << 14

// FanOut multiplies a job by its static matrix. A job without one, or with one that only an agent can evaluate, has one
// child of its own name. Children stand in the order in which they are dispatched. The error is a *FanoutError.
func FanOut(j lockfile.Job) ([]Child, error) {
	if j.Matrix == nil || j.Matrix.Type == "dynamic" {
		return []Child{{Name: j.Name}}, nil
	}
	if !j.Matrix.HasValues {
		return nil, fanoutError("static matrix for job '%s' has no values", j.Name)
	}
	if n := product(*j.Matrix); n > maxProduct {
		return nil, fanoutError("matrix for job '%s' expands to %d combinations (max %d)", j.Name, n, ci.MaxMatrix)
	}
	combos := adjust(expand(*j.Matrix), j.Include, j.Exclude)
	switch {
	case len(combos) == 0:
		return nil, fanoutError("matrix for job '%s' expands to zero combinations", j.Name)
	case len(combos) > ci.MaxMatrix:
		return nil, fanoutError("matrix for job '%s' expands to %d combinations (max %d)", j.Name, len(combos), ci.MaxMatrix)
	}
	return matrixChildren(j.Name, combos), nil
}

// FanOutResolved multiplies a job by combinations that an agent computed. The error is a *FanoutError.
func FanOutResolved(job string, combos []lockfile.Pairs) ([]Child, error) {
	switch {
	case len(combos) == 0:
		return nil, fanoutError("dynamic matrix for job '%s' resolved to zero combinations", job)
	case len(combos) > ci.MaxMatrix:
		return nil, fanoutError("dynamic matrix for job '%s' resolved to %d combinations (max %d)", job, len(combos), ci.MaxMatrix)
	}
	return matrixChildren(job, combos), nil
}

// fanOut multiplies a job by its hosts, or by its static matrix. The error is a *FanoutError.
func (b *builder) fanOut(j lockfile.Job) ([]Child, error) {
	if j.RunsOnAll != nil {
		return b.hosts(j)
	}
	return FanOut(j)
}

// hosts makes the children of a job that runs on all hosts of the roster that fit. A host that is away and shall fail has
// a child too, which says so, and so has one without an agent that the job asks for.
func (b *builder) hosts(j lockfile.Job) ([]Child, error) {
	fanout := label.Fanout{Include: j.RunsOnAll.Include, Exclude: j.RunsOnAll.Exclude, OnUnreachable: j.OnUnreachable,
		Grace: b.in.RosterGrace, Uninitialized: j.IncludeUninitialized}
	places, err := fanout.Roster(b.in.Roster, b.in.Now)
	if err != nil {
		return nil, fanoutError("job '%s': %v", j.Name, err)
	}
	places = slices.DeleteFunc(places, func(p label.Place) bool { return p.Action == label.HostSkip })
	hosts := make([]Host, len(places))
	for i, p := range places {
		hosts[i] = Host{AgentID: p.Host.AgentID, Name: p.Label, Labels: p.Host.Labels, Platform: p.Host.Platform, Arch: p.Host.Arch}
	}
	children, err := FanOutHosts(j.Name, hosts, cmp.Or(b.in.MaxHosts, ci.MaxFanoutHosts))
	if err != nil {
		return nil, err
	}
	for i, p := range places {
		children[i].BringUp = p.Action == label.HostBringUp
		if p.Action == label.HostFail {
			children[i].Failure = fmt.Sprintf("job '%s' cannot run: %s", children[i].Name, p.Why)
		}
	}
	return children, nil
}

// FanOutHosts makes one child for each host, in the order given. The error is a *FanoutError.
func FanOutHosts(job string, hosts []Host, limit int) ([]Child, error) {
	switch {
	case len(hosts) == 0:
		return nil, fanoutError("runsOnAll for job '%s' matched zero matching hosts", job)
	case len(hosts) > limit:
		return nil, fanoutError("runsOnAll for job '%s' matched %d hosts (max %d)", job, len(hosts), limit)
	}
	children := make([]Child, len(hosts))
	keys := make([]string, len(hosts))
	for i, h := range hosts {
		children[i] = Child{Name: childName(job, h.Name), VariantKind: VariantHost, Host: &h, Label: h.Name}
		keys[i] = h.AgentID
	}
	rank(children, keys)
	return children, nil
}

func matrixChildren(job string, combos []lockfile.Pairs) []Child {
	children := make([]Child, len(combos))
	keys := make([]string, len(combos))
	for i, c := range combos {
		c = c.InOrder()
		s := suffix(c)
		children[i] = Child{Name: childName(job, s), VariantKind: VariantMatrix, Values: c, Label: s}
		keys[i] = children[i].Name
	}
	rank(children, keys)
	return children
}

func childName(base, suffix string) string { return base + " (" + suffix + ")" }

// suffix is what a combination shows in a name: its values, in the order of its keys.
func suffix(combo lockfile.Pairs) string {
	values := make([]string, len(combo))
	for i, p := range combo {
		values[i] = p.Value
	}
	return strings.Join(values, ", ")
}

// rank gives children their positions by the collation of their keys. An only child has none.
func rank(children []Child, keys []string) {
	if len(children) < 2 {
		return
	}
	order := make([]int, len(children))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return collate.Compare(keys[a], keys[b]) })
	for position, i := range order {
		children[i].Index, children[i].Total = position, len(children)
	}
}

// product is the number of combinations before include and exclude.
func product(m lockfile.Matrix) int {
	if len(m.Dimensions) == 0 {
		return len(m.List)
	}
	n := 1
	for _, d := range m.Dimensions {
		if len(d.Values) == 0 {
			return 0
		}
		if n > math.MaxInt/len(d.Values) {
			n = math.MaxInt // too many to count; zero further on still wins
			continue
		}
		n *= len(d.Values)
	}
	return n
}

// expand multiplies the values out: dimensions by collation, the first outermost, values as written. A list is one
// dimension called value.
func expand(m lockfile.Matrix) []lockfile.Pairs {
	if product(m) == 0 {
		return nil // before multiplying: the empty dimension may be the last of many
	}
	dimensions := slices.Clone(m.Dimensions)
	if len(dimensions) == 0 {
		dimensions = []lockfile.Dimension{{Name: "value", Values: m.List}}
	}
	slices.SortStableFunc(dimensions, func(a, b lockfile.Dimension) int { return collate.Compare(a.Name, b.Name) })
	combos := []lockfile.Pairs{nil}
	for _, d := range dimensions {
		next := make([]lockfile.Pairs, 0, len(combos)*len(d.Values))
		for _, c := range combos {
			for _, v := range d.Values {
				next = append(next, append(slices.Clip(c), lockfile.Pair{Key: d.Name, Value: v}))
			}
		}
		combos = next
	}
	for i, c := range combos {
		combos[i] = c.InOrder()
	}
	return combos
}

// adjust drops the combinations that an exclude entry holds for, then appends the include entries that are new. An empty
// entry of either is ignored.
func adjust(combos, include, exclude []lockfile.Pairs) []lockfile.Pairs {
	kept := slices.DeleteFunc(combos, func(c lockfile.Pairs) bool {
		return slices.ContainsFunc(exclude, func(e lockfile.Pairs) bool { return len(e) > 0 && holds(e, c) })
	})
	known := make(map[string]bool, len(kept))
	for _, c := range kept {
		known[identity(c)] = true
	}
	for _, e := range include {
		if id := identity(e); len(e) > 0 && !known[id] {
			known[id] = true
			kept = append(kept, e)
		}
	}
	return kept
}

func holds(entry, combo lockfile.Pairs) bool {
	for _, p := range entry {
		if v, ok := combo.Get(p.Key); !ok || v != p.Value {
			return false
		}
	}
	return true
}

// identity is the same for combinations with the same keys and values in any order.
func identity(c lockfile.Pairs) string {
	c = slices.Clone(c)
	slices.SortFunc(c, func(a, b lockfile.Pair) int { return strings.Compare(a.Key, b.Key) })
	raw, err := json.Marshal(c)
	if err != nil {
		panic("marshal pairs: " + err.Error()) // texts only: cannot fail
	}
	return string(raw)
}

// wave is what rolling waves mean for one child.
type wave struct {
	gated       bool
	maxParallel int
	failFast    bool
}

// wavePlan holds the children beyond the first maxParallel, by position. Without a width, or with an only child, there is
// no wave.
func wavePlan(children []Child, maxParallel int, failFast bool) []wave {
	waves := make([]wave, len(children))
	if maxParallel < 1 || len(children) < 2 {
		return waves
	}
	for i, c := range children {
		waves[i] = wave{gated: c.Index >= maxParallel, maxParallel: maxParallel, failFast: failFast}
	}
	return waves
}
