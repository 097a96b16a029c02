package runs

import (
	"fmt"
	"slices"
	"strings"

	"kici/internal/cli/livetree"
	"kici/internal/core/adminwire"
	"kici/internal/core/ci"
)

// none says why there is no log of what was asked for: a name that is none, a step that has not begun, or a job that never
// ran. Which steps a job has is known only once it runs.
func (l *logPrinter) none(run ci.RunStatus, jobs []adminwire.Job) error {
	i := slices.IndexFunc(jobs, func(j adminwire.Job) bool { return l.of.job == j.JobName || l.of.job == j.JobID })
	switch {
	case l.of.job == "" && run.Terminal():
		return fmt.Errorf("no step of the run has begun, so there is no log: see kici admin runs explain %s", l.run)
	case l.of.job == "":
		return fmt.Errorf("no step has started yet: see kici admin runs explain %s", l.run)
	case i < 0 && run.Terminal():
		return fmt.Errorf("the run has no job %q; it has %s", l.of.job, some(jobs, func(j adminwire.Job) string { return j.JobName }))
	case i < 0: // a generator may still give it
		return fmt.Errorf("the run has no job %q yet; it has %s", l.of.job, some(jobs, func(j adminwire.Job) string { return j.JobName }))
	case jobs[i].Status.Terminal() && len(jobs[i].Steps) == 0:
		return fmt.Errorf("job %q is %s and has no log: see kici admin runs explain %s", l.of.job, jobs[i].Status, l.run)
	case jobs[i].Status.Terminal():
		return fmt.Errorf("job %q has no step %q; it has %s", l.of.job, l.of.step, some(jobs[i].Steps, func(s adminwire.Step) string { return s.StepName }))
	case l.of.step != "":
		return fmt.Errorf("no step %q of job %q has started yet", l.of.step, l.of.job)
	}
	return fmt.Errorf("no step of job %q has started yet: see kici admin runs explain %s", l.of.job, l.run)
}

// someNames bounds the names that a message lists.
const someNames = 10

// some lists the first names.
func some[T any](all []T, name func(T) string) string {
	if len(all) == 0 {
		return "none"
	}
	names := make([]string, 0, someNames)
	for _, one := range all[:min(len(all), someNames)] {
		names = append(names, livetree.Clean(name(one)))
	}
	text := strings.Join(names, ", ")
	if more := len(all) - someNames; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
