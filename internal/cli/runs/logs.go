package runs

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"kici/internal/cli/console"
	"kici/internal/cli/livetree"
	"kici/internal/client"
	"kici/internal/core/adminwire"
	"kici/internal/core/ci"
)

// pageLines is how many lines are asked for at a time, as many as a server gives.
const pageLines = 2000

// lookEvery is the pause between two looks at a run that goes on. A run is a matter of seconds, and a look costs the
// server well under a millisecond.
const lookEvery = 250 * time.Millisecond

// logsCommand prints steps in the order of the run. With --follow it looks at every open step in turn, so that lines of
// steps that go on together are mixed, each with the step's name before it.
func (a *admin) logsCommand() *cobra.Command {
	l := &logPrinter{admin: a}
	var o logOptions
	cmd := &cobra.Command{
		Use:   "logs RUN",
		Short: "Print or search the logs of a run, of one job or of one step",
		Long: "Prints the logs of a run's jobs: what each says itself, then its steps in their order. Where it is more than one step, each line\n" +
			"says which. With --json each line is one JSON object. With --grep only lines that hold a text are printed, each with its\n" +
			"number; colours do not count. --step -1 is what the job itself says.",
		Example: "  kici admin runs logs latest --follow\n  kici admin runs logs latest --job test --step unit --tail 50\n" +
			"  kici admin runs logs latest --grep 'FAIL' --ignore-case\n  kici admin runs logs latest --job test --step unit --raw > unit.log",
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeRuns,
	}
	o.flags(cmd, l)
	_ = cmd.RegisterFlagCompletionFunc("job", a.jobsOfRun())
	cmd.RunE = a.ofRun(func(ctx context.Context, c *client.Client, id string) error {
		if err := o.check(); err != nil {
			return err
		}
		if o.follow {
			c = c.Patient()
		}
		l.c, l.run, l.from, l.first, l.tail = c, id, map[stepKey]int64{}, max(o.from-1, 0), o.tail
		l.ended = map[stepKey]time.Time{}
		l.of, l.colour, l.prefix = &o, a.Colour(a.Stdout), o.step == ""
		switch {
		case o.raw:
			return l.printRaw(ctx)
		case o.grep != "":
			l.search = &client.LogSearch{Wanted: o.grep, Expression: o.expression, IgnoreCase: o.ignoreCase}
		}
		return l.print(ctx, o.follow)
	})
	return cmd
}

// logOptions are the flags that say which part of which logs is wanted.
type logOptions struct {
	job, step                           string
	follow, raw, expression, ignoreCase bool
	grep                                string
	from                                int64 // counted from 1; 0 is not given
	tail                                int64
}

func (o *logOptions) flags(cmd *cobra.Command, l *logPrinter) {
	f := cmd.Flags()
	f.StringVar(&o.job, "job", "", "name or id of one job")
	f.StringVar(&o.step, "step", "", "name or number of one step; needs --job")
	f.BoolVarP(&o.follow, "follow", "f", false, "go on until the run has ended")
	f.Int64Var(&o.tail, "tail", 0, "begin that many lines before the end of each step")
	f.Int64Var(&o.from, "from", 0, "begin at that line of each step, counted from 1")
	f.StringVar(&o.grep, "grep", "", "print the lines that hold this text")
	f.BoolVarP(&o.expression, "regexp", "E", false, "the text of --grep is a regular expression (RE2)")
	f.BoolVarP(&o.ignoreCase, "ignore-case", "i", false, "upper and lower case are the same for --grep")
	f.BoolVar(&o.raw, "raw", false, "print one step's log as it is stored, one JSON object a line")
	f.BoolVar(&l.times, "timestamps", false, "begin each line with its time")
}

// check finds flags that do not go together.
func (o *logOptions) check() error {
	switch {
	case o.step != "" && o.job == "":
		return console.Usage("--step needs --job: steps of different jobs may have one name")
	case o.tail < 0 || o.from < 0:
		return console.Usage("--tail and --from take a number of lines from 1 on")
	case o.tail > 0 && o.from > 0:
		return console.Usage("--tail and --from are two places to begin at: use one of them")
	case o.grep != "" && (o.follow || o.tail > 0):
		return console.Usage("--grep searches what is there: it goes neither with --follow nor with --tail")
	case o.grep == "" && (o.expression || o.ignoreCase):
		return console.Usage("--regexp and --ignore-case need --grep")
	case o.raw && (o.follow || o.tail > 0 || o.from > 0 || o.grep != "" || o.step == ""):
		return console.Usage("--raw prints the whole log of one step: it needs --job and --step, and goes with no other part of a log")
	}
	return nil
}

// wanted tells whether a step is one of those that were asked for.
func (o *logOptions) wanted(j adminwire.Job, s adminwire.Step) bool {
	return (o.job == "" || o.job == j.JobName || o.job == j.JobID) && (o.step == "" || o.step == s.StepName || o.step == strconv.Itoa(s.StepIndex))
}

// stepKey names a step of a run.
type stepKey struct {
	job  string
	step int
}

// logPrinter prints the logs of steps, each from where it stopped before.
type logPrinter struct {
	*admin
	c             *client.Client
	run           string
	of            *logOptions           // which steps
	from          map[stepKey]int64     // lines printed; −1 of a step whose job has ended and which is printed whole
	ended         map[stepKey]time.Time // when the end of a step was seen whose job goes on
	first         int64                 // line that each step begins with
	tail          int64                 // or how many lines before its end, 0 for first
	search        *client.LogSearch     // what lines must hold, nil for all lines
	prefix        bool                  // lines say of which step they are
	times, colour bool
	printed       bool // there was a line
}

// print prints what there is, and with follow what comes, until the run has ended.
func (l *logPrinter) print(ctx context.Context, follow bool) error {
	for {
		// The run is looked at first: what ended before has all its lines when they are read.
		run, err := l.c.Run(ctx, l.run)
		if err != nil {
			return err
		}
		jobs, err := l.c.Jobs(ctx, l.run)
		if err != nil {
			return err
		}
		found, err := l.steps(ctx, jobs)
		if err != nil {
			return err
		}
		if run.Status.Terminal() || !follow {
			if !found {
				return l.none(run.Status, jobs)
			}
			return nil
		}
		if err := pause(ctx, lookEvery); err != nil {
			return err
		}
	}
}

// pause waits, or gives the reason why ctx ended.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// steps prints the new lines of every wanted step, and tells whether there is one.
func (l *logPrinter) steps(ctx context.Context, jobs []adminwire.Job) (found bool, err error) {
	for _, j := range jobs {
		for _, s := range append([]adminwire.Step{j.OwnLog()}, j.Steps...) {
			if !l.of.wanted(j, s) || s.Status == ci.StepPending && s.StepIndex == adminwire.OwnLogIndex {
				continue
			}
			found = found || s.StepIndex != adminwire.OwnLogIndex
			if err := l.step(ctx, j, s); err != nil {
				return found, err
			}
		}
	}
	return found || l.printed, nil // a job that ended before its first step may have said why
}

// step prints the new lines of one step. What others wrote is cleaned for a terminal and passed on as it is elsewhere.
func (l *logPrinter) step(ctx context.Context, j adminwire.Job, s adminwire.Step) error {
	if l.search != nil {
		return l.matches(ctx, j, s)
	}
	key := stepKey{j.JobID, s.StepIndex}
	if l.rests(j, s) {
		return nil
	}
	if _, begun := l.from[key]; !begun {
		from, err := l.begin(ctx, j, s)
		if err != nil {
			return err
		}
		l.from[key] = from
	}
	for l.from[key] >= 0 {
		page, err := l.c.Logs(ctx, l.run, j.JobID, s.StepIndex, client.LogQuery{From: l.from[key], Limit: pageLines})
		if err != nil {
			return err
		}
		for _, line := range page.Lines {
			if err := l.line(j, s, readRecord(line.Value), 0); err != nil {
				return err
			}
		}
		l.from[key] += int64(len(page.Lines))
		if page.NextCursor != nil {
			continue
		}
		if page.Expired {
			l.sayExpired(j, s)
		}
		if j.Status.Terminal() || page.Expired {
			l.from[key] = -1
		}
		return nil
	}
	return nil
}

// lastLines is how long a step that has ended is looked at while its job goes on: some agents send the last lines behind the
// end. What comes later is printed when the job has ended.
const lastLines = 2 * time.Second

// rests tells whether nothing is to be looked for in the log of a step that has ended, until its job has.
func (l *logPrinter) rests(j adminwire.Job, s adminwire.Step) bool {
	if !s.Status.Terminal() || j.Status.Terminal() {
		return false
	}
	key := stepKey{j.JobID, s.StepIndex}
	if _, seen := l.ended[key]; !seen {
		l.ended[key] = time.Now()
	}
	return time.Since(l.ended[key]) > lastLines
}

// begin is the line at which the printing of a step begins.
func (l *logPrinter) begin(ctx context.Context, j adminwire.Job, s adminwire.Step) (int64, error) {
	if l.tail == 0 {
		return l.first, nil
	}
	page, err := l.c.Logs(ctx, l.run, j.JobID, s.StepIndex, client.LogQuery{Tail: 1})
	return max(page.TotalLines-l.tail, 0), err
}

// sayExpired tells people that there were lines once. Whether a job itself had said something is not known any more.
func (l *logPrinter) sayExpired(j adminwire.Job, s adminwire.Step) {
	if s.StepIndex == adminwire.OwnLogIndex {
		return
	}
	fmt.Fprintf(l.Stderr, "the log of %s › %s has expired\n", livetree.Clean(j.JobName), livetree.Clean(s.StepName))
}

// record is a stored line.
type record struct {
	TS  string `json:"ts"`
	Msg string `json:"msg"`
}

// readRecord reads a stored line; one in another form is shown as it is.
func readRecord(stored string) record {
	var r record
	if json.Unmarshal([]byte(stored), &r) != nil {
		r.Msg = stored
	}
	return r
}

// line prints one line. A number, counted from 1, is that of a line that was searched for.
func (l *logPrinter) line(j adminwire.Job, s adminwire.Step, r record, number int64) error {
	l.printed = true
	if l.JSON {
		raw, err := json.Marshal(struct {
			Job       string `json:"job"`
			Step      string `json:"step"`
			StepIndex int    `json:"stepIndex"`
			Line      int64  `json:"line,omitempty"`
			record
		}{j.JobName, s.StepName, s.StepIndex, number, r})
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(l.Stdout, "%s\n", raw)
		return err
	}
	text := r.Msg
	if _, ok := console.Terminal(l.Stdout); ok {
		text = livetree.CleanColours(text)
		if !l.colour {
			text = livetree.Clean(text)
		}
	}
	if number > 0 {
		text = strconv.FormatInt(number, 10) + ": " + text
	}
	if l.prefix {
		text = livetree.Place(j.JobName, s.StepName) + " | " + text
	}
	if l.times {
		text = r.TS + " " + text
	}
	_, err := fmt.Fprintln(l.Stdout, text) // an output that is gone ends the printing
	return err
}
