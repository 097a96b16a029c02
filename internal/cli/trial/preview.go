package trial

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kici/internal/agent/local"
	"kici/internal/cli/console"
	"kici/internal/cli/livetree"
	"kici/internal/core/ci"
	"kici/internal/core/label"
	"kici/internal/core/lockfile"
	"kici/internal/decide/plan"
	"kici/internal/decide/trigger"
)

// PreviewCommand is kici preview.
func PreviewCommand(p console.Process) *cobra.Command {
	t := &trial{Process: p}
	cmd := &cobra.Command{
		Use:   "preview [EVENT]",
		Short: "Show which workflows an event starts and why, and their jobs",
		Long: "Matches every workflow against an event, by the same decisions as a server, and shows each comparison. Of those that\n" +
			"start it shows the jobs with what they need and where they run. Nothing is run and no server is asked.\n\n" +
			"EVENT is a built-in one (push, tag, pr, pr:sync, schedule, …; kici fixture list shows all), the name of a fixture, or a\n" +
			"file with an event. Without, it is a push. The exit code is 1 when a run would fail at once.",
		Example: "  kici preview\n  kici preview pr:open --branch release/1 --files src/a.go,README.md\n  kici preview push --workflow ci --json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := "push"
			if len(args) > 0 {
				name = args[0]
			}
			if err := t.prepare(cmd, name); err != nil {
				return err
			}
			return t.preview()
		},
	}
	t.flags(cmd)
	return cmd
}

// previewed is one workflow as preview shows it.
type previewed struct {
	Workflow    string            `json:"workflow"`
	Matched     bool              `json:"matched"`
	Decision    *trigger.Decision `json:"decision,omitempty"`
	Explanation []string          `json:"explanation,omitempty"`
	Error       string            `json:"error,omitempty"`    // why it could not be matched or planned
	Approval    bool              `json:"approval,omitempty"` // no job begins before one
	Install     []installSecret   `json:"installSecrets,omitempty"`
	Jobs        []previewedJob    `json:"jobs,omitempty"`
}

// installSecret is one that the installation of packages needs.
type installSecret struct {
	Name  string `json:"name"`  // CONTEXT:SECRET
	Known bool   `json:"known"` // among those of this machine
}

// previewedJob is a job that a run would have.
type previewedJob struct {
	Name        string          `json:"name"`
	BaseName    string          `json:"baseName"`
	Kind        ci.JobKind      `json:"kind"`
	Needs       []previewNeed   `json:"needs"`
	Matrix      lockfile.Pairs  `json:"matrix,omitempty"`
	Host        string          `json:"host,omitempty"`
	RunsOn      json.RawMessage `json:"runsOn"` // a selector
	Contexts    []string        `json:"contexts,omitempty"`
	Secrets     []string        `json:"secrets,omitempty"` // names of those that a local run gives it
	Concurrency string          `json:"concurrencyGroup,omitempty"`
	Approval    bool            `json:"approval,omitempty"`
	Deferred    bool            `json:"deferred,omitempty"` // an agent computes a part of it first
	Failure     string          `json:"failure,omitempty"`  // why it would fail at once

	selector label.Selector
	shown    string // the name, or for a job that works for others what it is for
}

type previewNeed struct {
	Job   string         `json:"job"`
	RunOn []ci.JobStatus `json:"runOn"`

	shown string
}

// anyHost stands in previews for the hosts of a job that runs on all of some.
const anyHost = "each host"

func (t *trial) preview() error {
	matcher := trigger.NewMatcher(t.event, trigger.Options{})
	list := []previewed{}
	failed := false
	for _, w := range t.lock.Workflows {
		if t.workflow != "" && w.Name != t.workflow {
			continue
		}
		one, err := t.previewOne(matcher, w)
		if err != nil {
			return err
		}
		failed = failed || one.fails()
		list = append(list, one)
	}
	if t.json {
		if err := t.PrintJSON(map[string]any{"event": t.event, "workflows": list}); err != nil {
			return err
		}
	} else {
		t.printPreview(list)
	}
	if failed {
		return &console.ExitError{Code: console.ExitFailure}
	}
	return nil
}

func (t *trial) previewOne(matcher *trigger.Matcher, w lockfile.Workflow) (previewed, error) {
	one := previewed{Workflow: w.Name}
	decision, err := matcher.Match(w)
	if err != nil {
		one.Error = err.Error()
		return one, nil
	}
	one.Matched, one.Decision, one.Explanation = decision.Matched, &decision, trigger.Explain(decision)
	if !decision.Matched {
		return one, nil
	}
	made, err := local.Plan(local.Work{Workflow: w, Event: t.event, Source: t.source, Host: anyHost}, t.job, time.Now().UnixMilli())
	if err != nil {
		return one, unknownJob(err)
	}
	if made.InitFailure != nil {
		one.Error = made.InitFailure.Message
	}
	one.Jobs, one.Approval, one.Install = t.previewJobs(made), made.Approval != nil, t.installSecrets(w)
	return one, nil
}

func (t *trial) installSecrets(w lockfile.Workflow) (list []installSecret) {
	names := slices.Clone(w.InstallEnv)
	for _, r := range w.Registries {
		names = append(names, r.TokenSecret)
	}
	for _, name := range names {
		context, secret, _ := strings.Cut(name, ":")
		_, known := t.known.Of([]string{context})[secret]
		list = append(list, installSecret{name, known})
	}
	return list
}

// fails tells that a run would not even begin well.
func (one previewed) fails() bool {
	return one.Error != "" || slices.ContainsFunc(one.Jobs, func(j previewedJob) bool { return j.Failure != "" })
}

// unknownJob makes a mistake of the call of the name of a job that is not there.
func unknownJob(err error) error {
	if none, ok := errors.AsType[*local.NoJobError](err); ok {
		return console.Usage("%w", none)
	}
	return err
}

func (t *trial) previewJobs(p plan.Plan) []previewedJob {
	jobs := make([]previewedJob, len(p.Jobs))
	shown := map[string]string{}
	for _, j := range p.Jobs {
		shown[j.Name] = shownName(j)
	}
	for i, j := range inOrder(p) {
		one := previewedJob{Name: j.Name, BaseName: j.BaseName, Kind: j.Kind, Needs: []previewNeed{}, Matrix: j.MatrixValues, selector: j.Selector,
			Contexts: j.ContextDisplay, Secrets: slices.Sorted(maps.Keys(t.known.Of(j.Contexts))), Concurrency: j.Concurrency, Approval: j.Approval != nil, Deferred: j.Deferred}
		if j.Host != nil {
			one.Host, one.selector = j.Host.Name, label.Selector{Labels: j.Host.Labels}
		}
		one.RunsOn, one.shown = json.RawMessage(one.selector.Canonical()), shown[j.Name]
		if j.InitFailure != nil {
			one.Failure = j.InitFailure.Message
		}
		for _, e := range p.Edges {
			if e.Job == j.Name {
				one.Needs = append(one.Needs, previewNeed{e.Upstream, e.RunOn, shown[e.Upstream]})
			}
		}
		jobs[i] = one
	}
	return jobs
}

// inOrder are the jobs with each behind those that it waits for, else in the order in which they are written.
func inOrder(p plan.Plan) []plan.Job {
	upstreams := map[string][]string{}
	for _, e := range p.Edges {
		upstreams[e.Job] = append(upstreams[e.Job], e.Upstream)
	}
	byName := map[string]plan.Job{}
	inits := map[string]string{} // by the base name of their target
	for _, j := range p.Jobs {
		byName[j.Name] = j
		if j.Target != "" {
			inits[j.Target] = j.Name
		}
	}
	list := make([]plan.Job, 0, len(p.Jobs))
	var put func(name string)
	put = func(name string) {
		j, open := byName[name]
		if !open {
			return
		}
		delete(byName, name)
		if j.Deferred {
			put(inits[j.BaseName])
		}
		for _, upstream := range upstreams[name] {
			put(upstream)
		}
		list = append(list, j)
	}
	for _, j := range p.Jobs {
		put(j.Name)
	}
	return list
}

// shownName is the name of a job of the author's, and what a job is for that works for others.
func shownName(j plan.Job) string {
	switch {
	case j.Kind == ci.KindInit:
		return "(init of " + j.Target + ")"
	case j.Kind == ci.KindGenerator && j.Group != "":
		return "(generator of " + j.Group + ")"
	case j.Kind == ci.KindGenerator:
		return "(generator)"
	}
	return j.Name
}

func (t *trial) printPreview(list []previewed) {
	fmt.Fprintf(t.Stdout, "%s on %s of %s\n", t.event.Display(), livetree.Clean(t.event.TargetBranch), livetree.Clean(t.event.SourceRepo))
	for _, one := range list {
		fmt.Fprintln(t.Stdout)
		one.print(t.Stdout)
	}
	if t.stale != "" {
		fmt.Fprintln(t.Stderr, t.stale)
	}
}

func mark(passed bool) string {
	if passed {
		return "✓"
	}
	return "✗"
}

func (one previewed) print(out io.Writer) {
	if one.Decision == nil {
		fmt.Fprintf(out, "✗ %s: %s\n", livetree.Clean(one.Workflow), livetree.Clean(one.Error))
		return
	}
	fmt.Fprintf(out, "%s %s: %s\n", mark(one.Matched), livetree.Clean(one.Workflow), one.Decision.Summary)
	var others []trigger.Check // of triggers for other events, of which one line tells all there is to say
	for i, c := range one.Decision.Checks {
		if c.Check == "event type" && !c.Passed {
			others = append(others, c)
			continue
		}
		fmt.Fprintf(out, "    %s %s\n", mark(c.Passed), one.Explanation[i])
	}
	if len(others) > 0 {
		fmt.Fprintf(out, "    ✗ %s\n", typeChecks(others))
	}
	if one.Error != "" {
		fmt.Fprintf(out, "  It would fail at once: %s\n", livetree.Clean(one.Error))
	}
	if one.Approval {
		fmt.Fprintln(out, "  No job begins before an approval")
	}
	for _, s := range one.Install {
		where := "which is among your secrets"
		if !s.Known {
			where = "which is not among your secrets"
		}
		fmt.Fprintf(out, "  Its packages are installed with %s, %s\n", livetree.Clean(s.Name), where)
	}
	width := 0
	for _, j := range one.Jobs {
		width = max(width, len(j.shown))
	}
	for i, j := range one.Jobs {
		if i == 0 {
			fmt.Fprintln(out, "  jobs:")
		}
		fmt.Fprintln(out, strings.TrimRight(fmt.Sprintf("    %-*s  %s", width, livetree.Clean(j.shown), livetree.Clean(j.about())), " "))
	}
}

// typeChecks says what the triggers that hear other events have to say: of them all that the event has none of their types.
func typeChecks(failed []trigger.Check) string {
	var types []string
	for _, c := range failed {
		if wanted := "`" + livetree.Clean(c.Pattern) + "`"; !slices.Contains(types, wanted) {
			types = append(types, wanted)
		}
	}
	verdict := "does not match"
	if len(types) > 1 {
		verdict = "matches none of"
	}
	return fmt.Sprintf("event type `%s` %s %s", livetree.Clean(console.Text(failed[0].Value)), verdict, strings.Join(types, ", "))
}

// about says in one line what there is to know of a job.
func (j previewedJob) about() string {
	parts := []string{"on " + onLabels(j.selector)}
	if j.Host != "" {
		parts[0] = "on each host with " + onLabels(j.selector)
	}
	var needs []string
	for _, n := range j.Needs {
		needs = append(needs, n.shown)
	}
	for _, more := range []struct{ word, text string }{
		{"needs ", strings.Join(needs, ", ")}, {"contexts ", strings.Join(j.Contexts, ", ")},
		{"secrets ", strings.Join(j.Secrets, ", ")}, {"fails at once: ", j.Failure},
	} {
		if more.text != "" {
			parts = append(parts, more.word+more.text)
		}
	}
	if j.Approval {
		parts = append(parts, "waits for an approval")
	}
	if j.Deferred {
		parts = append(parts, "completed by an agent")
	}
	return strings.Join(parts, "; ")
}

func onLabels(s label.Selector) string {
	words := append([]string{}, s.Labels...)
	for _, m := range s.Patterns {
		words = append(words, m.String())
	}
	for _, no := range s.Exclude {
		words = append(words, "!"+no)
	}
	for _, m := range s.ExcludePatterns {
		words = append(words, "!"+m.String())
	}
	if len(words) == 0 {
		return "any agent"
	}
	return strings.Join(words, ", ")
}
