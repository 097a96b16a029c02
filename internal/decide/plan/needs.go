package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"kici/internal/core/ci"
	"kici/internal/core/lockfile"
)

// dependant is an expanded job and what its base needs.
type dependant struct {
	name   string
	needs  []lockfile.NeedsEntry
	groups []string
}

// group is the key of a group of generated jobs in an expansion map, apart from the names of jobs.
func group(name string) string { return "\x00" + name }

// edges makes one edge for each upstream job: a need of a base is a need of all its children, a need of a group one of
// all its members. Of several for one pair the first counts.
func edges(jobs []dependant, expansion map[string][]string) []Edge {
	var out []Edge
	for _, j := range jobs {
		seen := map[string]bool{}
		for _, n := range j.needs {
			upstreams := expansion[n.Name]
			if n.Name == "" {
				upstreams = expansion[group(n.Group)]
			}
			runOn := statuses(n)
			for _, u := range upstreams {
				if !seen[u] {
					seen[u] = true
					out = append(out, Edge{Job: j.name, Upstream: u, RunOn: runOn, ViaGroup: n.Name == ""})
				}
			}
		}
	}
	return out
}

// allNeeds is a job's needs with the groups that it depends on, which compilers repeat in a list of their own.
func allNeeds(j lockfile.Job) []lockfile.NeedsEntry {
	needs := slices.Clone(j.Needs)
	for _, g := range j.DependsOnGroups {
		if !slices.ContainsFunc(needs, func(n lockfile.NeedsEntry) bool { return n.Name == "" && n.Group == g }) {
			needs = append(needs, lockfile.NeedsEntry{Group: g})
		}
	}
	return needs
}

func statuses(n lockfile.NeedsEntry) []ci.JobStatus {
	var out []ci.JobStatus
	for _, s := range n.Statuses() {
		out = append(out, ci.JobStatus(s))
	}
	return out
}

// checkNeeds says what is wrong with the names and needs of a workflow, "" when nothing is. The reader of the document
// leaves this to the planner.
func checkNeeds(w lockfile.Workflow) string {
	g := graph{needs: map[string][]string{}, groups: map[string][]string{}}
	for i, j := range w.Jobs {
		name := j.Name
		switch j.Kind() {
		case lockfile.KindUnknown:
			continue
		case lockfile.KindDynamic:
			name = generatorName(w.Name, i)
			g.groups[j.Group] = append(g.groups[j.Group], name)
		case lockfile.KindStatic:
			if name == "" {
				return fmt.Sprintf("entry %d of the jobs of workflow '%s' has no name", i+1, w.Name)
			}
		}
		if _, twice := g.needs[name]; twice {
			return fmt.Sprintf("workflow '%s' has two jobs called '%s'", w.Name, name)
		}
		g.needs[name] = nil
		g.order = append(g.order, name)
	}
	return g.check(w)
}

// graph is who needs whom, by base name.
type graph struct {
	order  []string
	needs  map[string][]string
	groups map[string][]string
}

func (g *graph) check(w lockfile.Workflow) string {
	k := 0
	for _, j := range w.Jobs {
		if j.Kind() == lockfile.KindUnknown {
			continue
		}
		name := g.order[k]
		k++
		for _, n := range allNeeds(j) {
			upstreams, message := g.resolve(n)
			if message != "" {
				return fmt.Sprintf("job '%s' of workflow '%s' needs %s", name, w.Name, message)
			}
			g.needs[name] = append(g.needs[name], upstreams...)
		}
	}
	if path := g.cycle(); path != nil {
		return fmt.Sprintf("needs of workflow '%s': cycle detected: %s", w.Name, strings.Join(path, " -> "))
	}
	return ""
}

func (g *graph) resolve(n lockfile.NeedsEntry) (upstreams []string, message string) {
	if n.Name == "" {
		members := g.groups[n.Group]
		if len(members) == 0 {
			return nil, fmt.Sprintf("group '%s', which no generator of the workflow makes", n.Group)
		}
		return members, ""
	}
	if _, known := g.needs[n.Name]; !known {
		return nil, fmt.Sprintf("'%s', which is no job of the workflow (its jobs: %s)", n.Name, strings.Join(slices.Sorted(maps.Keys(g.needs)), ", "))
	}
	return []string{n.Name}, ""
}

// cycle returns the names along a cycle, the first repeated at the end, or nil. The search goes in the order of the
// document, so that the same workflow always names the same path.
func (g *graph) cycle() []string {
	const (
		open = iota + 1
		closed
	)
	state := map[string]int{}
	var path []string
	var visit func(string) []string
	visit = func(name string) []string {
		switch state[name] {
		case closed:
			return nil
		case open:
			return append(slices.Clone(path[slices.Index(path, name):]), name)
		}
		state[name] = open
		path = append(path, name)
		for _, u := range g.needs[name] {
			if found := visit(u); found != nil {
				return found
			}
		}
		path = path[:len(path)-1]
		state[name] = closed
		return nil
	}
	for _, name := range g.order {
		if found := visit(name); found != nil {
			return found
		}
	}
	return nil
}
