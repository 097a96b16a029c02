package plan

import (
	"fmt"
	"unicode/utf8"

	"kici/internal/core/ci"
	"kici/internal/core/lockfile"
)

// Names leave the server, so they are bounded; a plan knows jobs by the names that are stored, or two jobs that begin alike
// would be one to whoever asks by name, and what joins a run later would not find whom it is for. Only agents are told the
// author's own names, by which they look jobs up.

// bounded gives the jobs of a workflow, and what they need, their bounded names. written are the jobs as they were, by
// their bounded names.
func bounded(w lockfile.Workflow) (short lockfile.Workflow, written map[string]lockfile.Job) {
	written = map[string]lockfile.Job{}
	jobs := make([]lockfile.Job, len(w.Jobs))
	for i, j := range w.Jobs {
		jobs[i] = boundedJob(j)
		written[jobs[i].Name] = j
	}
	w.Jobs = jobs
	return w, written
}

func boundedJob(j lockfile.Job) lockfile.Job {
	needs := make([]lockfile.NeedsEntry, len(j.Needs))
	for i, n := range j.Needs {
		n.Name = ci.CutName(n.Name)
		needs[i] = n
	}
	j.Name = ci.CutName(j.Name)
	if j.Needs != nil {
		j.Needs = needs
	}
	return j
}

// asWritten is a job as its author wrote it.
func (b *builder) asWritten(j lockfile.Job) lockfile.Job {
	if author, ok := b.written[j.Name]; ok {
		return author
	}
	return j
}

// ending makes a bounded name that ends so, whatever of its beginning has to go.
func ending(name, end string) string {
	room := ci.MaxName - utf8.RuneCountInString(end)
	runes := []rune(ci.CutName(name))
	return string(runes[:min(len(runes), room)]) + end
}

// unique gives a name a number when another job has it already: a list may hold a value twice, two lists of values may
// read the same when joined, and long names may begin alike.
func (b *builder) unique(name string) string {
	name = ci.CutName(name)
	free := name
	for b.taken[free] > 0 {
		b.taken[name]++ // so that the next of this name starts its search here
		free = ending(name, fmt.Sprintf(" #%d", b.taken[name]))
	}
	b.taken[free] = 1
	return free
}
