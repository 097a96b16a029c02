//go:build unix

package trial

import (
	"context"
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"kici/internal/agent/local"
	"kici/internal/cli/console"
	"kici/internal/cli/livetree"
	"kici/internal/core/adminwire"
	"kici/internal/core/ci"
)

// localResults are the runs of one call.
type localResults struct {
	*localRun
	list []local.Result
}

// runOne runs a workflow before the eyes of whoever looks on.
func (r *localResults) runOne(ctx context.Context, o local.Options) error {
	var shown console.Screen = console.Silent{}
	var tails *tailScreen
	switch {
	case r.lines:
		shown = &lineScreen{p: r.Process, workflow: o.Workflow.Name, seen: map[string]string{}}
	case !r.quiet && !r.json:
		shown = r.Screen()
		if _, brief := console.Terminal(r.Stdout); brief {
			tails = &tailScreen{Screen: shown, last: map[adminwire.LogName][]string{}}
			shown = tails
		}
	}
	o.Screen = shown
	o.Artifacts = filepath.Join(o.Artifacts, local.FileName(o.Workflow.Name))
	result, err := local.Run(ctx, o)
	shown.Close()
	if err != nil {
		return err
	}
	if tails != nil {
		tails.print(r.Process, result)
	}
	r.list = append(r.list, result)
	if !r.json && !r.lines {
		r.summary(result)
	}
	return nil
}

// summary says in a line how a run ended, and where what was kept lies.
func (r *localResults) summary(result local.Result) {
	counts := map[ci.JobStatus]int{}
	for _, j := range result.Jobs {
		counts[j.Status]++
	}
	var parts []string
	for _, s := range ci.TerminalJobStatuses {
		if counts[s] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[s], s))
		}
	}
	line := fmt.Sprintf("%s: %s", livetree.Clean(result.Run.WorkflowName), result.Run.Status)
	if len(parts) > 0 {
		line += " (" + strings.Join(parts, ", ") + ")"
	}
	fmt.Fprintln(r.Stdout, line)
	for _, j := range result.Jobs {
		for _, s := range j.Steps {
			if s.DriftSummary != nil && console.Text(s.CheckOutcome) == "dry-run" {
				fmt.Fprintf(r.Stdout, "  %s › %s would change: %s\n", livetree.Clean(j.JobName), livetree.Clean(s.StepName), livetree.Clean(*s.DriftSummary))
			}
		}
	}
	for _, dir := range result.Kept {
		fmt.Fprintln(r.Stdout, "  kept", dir)
	}
	for _, file := range result.Artifacts {
		if rel, err := filepath.Rel(r.repo.Root, file); err == nil {
			file = rel
		}
		fmt.Fprintln(r.Stdout, "  artifact", livetree.Clean(file))
	}
}

// conclude writes what was asked for and gives the exit code.
func (r *localResults) conclude() error {
	if r.junit != "" {
		if err := r.writeJUnit(); err != nil {
			return err
		}
	}
	drift := false
	for _, one := range r.list {
		drift = drift || one.Drift
	}
	if r.json || r.lines {
		if err := r.printResult(drift); err != nil {
			return err
		}
	}
	switch {
	case drift && r.failOnDrift:
		return &console.ExitError{Code: console.ExitUsage}
	case r.failed():
		return &console.ExitError{Code: console.ExitFailure}
	}
	return nil
}

// printResult prints the results for programs, in the end.
func (r *localResults) printResult(drift bool) error {
	type one struct {
		Workflow  string          `json:"workflow"`
		RunID     string          `json:"runId"`
		Status    ci.RunStatus    `json:"status"`
		Reason    *string         `json:"failureReason"`
		Jobs      []adminwire.Job `json:"jobs"`
		Kept      []string        `json:"kept,omitempty"`
		Artifacts []string        `json:"artifacts,omitempty"`
	}
	results := []one{}
	summary := map[string]int{"passed": 0, "failed": 0, "cancelled": 0, "total": len(r.list)}
	for _, result := range r.list {
		results = append(results, one{result.Run.WorkflowName, result.Run.RunID, result.Run.Status, result.Run.FailureReason, result.Jobs, result.Kept,
			result.Artifacts})
		summary[map[ci.RunStatus]string{ci.RunSuccess: "passed", ci.RunFailed: "failed", ci.RunCancelled: "cancelled"}[result.Run.Status]]++
	}
	all := map[string]any{"drift": drift, "results": results, "summary": summary}
	if r.lines {
		all["type"] = "result"
		return r.PrintLine(all)
	}
	return r.PrintJSON(all)
}

// lineScreen prints each change and each line of a log as one line of JSON.
type lineScreen struct {
	p        console.Process
	workflow string
	seen     map[string]string
}

// change is one line of it. Which members it has depends on its type: run, job, step or log.
type change struct {
	Type       string  `json:"type"`
	Workflow   string  `json:"workflow"`
	Job        string  `json:"job,omitempty"`
	Step       string  `json:"step,omitempty"`
	Status     string  `json:"status,omitempty"`
	DurationMs *int64  `json:"durationMs,omitempty"`
	Error      *string `json:"error,omitempty"`
	Line       *string `json:"line,omitempty"`
}

// Show prints what has another state than at the last call.
func (s *lineScreen) Show(run adminwire.RunDetail, jobs []adminwire.Job) {
	for _, j := range jobs {
		for _, step := range j.Steps {
			s.changed(j.JobID+" "+strconv.Itoa(step.StepIndex), change{Type: "step", Job: j.JobName, Step: step.StepName, Status: string(step.Status), DurationMs: step.DurationMs, Error: step.ErrorMessage})
		}
		s.changed(j.JobID, change{Type: "job", Job: j.JobName, Status: string(j.Status), DurationMs: j.DurationMs, Error: j.ErrorMessage})
	}
	s.changed("", change{Type: "run", Status: string(run.Status), DurationMs: run.DurationMs, Error: run.FailureReason})
}

func (s *lineScreen) changed(key string, c change) {
	if s.seen[key] == c.Status {
		return
	}
	s.seen[key] = c.Status
	s.print(c)
}

// Line prints a line of a log.
func (s *lineScreen) Line(log adminwire.LogName, text string) {
	s.print(change{Type: "log", Job: log.Job, Step: log.Step, Line: &text})
}

func (s *lineScreen) print(c change) {
	c.Workflow = s.workflow
	_ = s.p.PrintLine(c) // who no longer reads has nobody to tell
}

// Close has nothing to leave.
func (s *lineScreen) Close() {}

// tailLines is how many of the last lines of a failed step are shown after a tree, which shows but one.
const tailLines = 20

// tailScreen remembers the last lines of each step.
type tailScreen struct {
	console.Screen
	last map[adminwire.LogName][]string
}

// Line passes a line on.
func (s *tailScreen) Line(log adminwire.LogName, text string) {
	lines := append(s.last[log], text)
	s.last[log] = lines[max(0, len(lines)-tailLines):]
	s.Screen.Line(log, text)
}

func (s *tailScreen) print(p console.Process, result local.Result) {
	for _, j := range result.Jobs {
		for _, step := range j.Steps {
			if lines := s.last[j.Log(step)]; step.Status == ci.StepFailed && len(lines) > 0 {
				fmt.Fprintf(p.Stdout, "\n%s › %s\n", livetree.Clean(j.JobName), livetree.Clean(step.StepName))
				for _, line := range lines {
					fmt.Fprintf(p.Stdout, "  %s\n", livetree.CleanColours(line))
				}
			}
		}
	}
}

// The elements of a JUnit file, as far as its readers agree on them.
type (
	junitFile struct {
		XMLName xml.Name     `xml:"testsuites"`
		Suites  []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Time     string      `xml:"time,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Name    string     `xml:"name,attr"`
		Class   string     `xml:"classname,attr"`
		Time    string     `xml:"time,attr"`
		Failure *junitNote `xml:"failure"`
		Skipped *junitNote `xml:"skipped"`
	}
	junitNote struct {
		Message string `xml:"message,attr,omitempty"`
	}
)

// writeJUnit writes a suite for each job with its steps as tests. A job that ended without any is one test itself.
func (r *localResults) writeJUnit() error {
	var file junitFile
	for _, result := range r.list {
		for _, j := range result.Jobs {
			file.Suites = append(file.Suites, junitOf(result.Run.WorkflowName, j))
		}
	}
	raw, err := xml.MarshalIndent(file, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(r.junit), 0o755)
	}
	if err == nil {
		err = os.WriteFile(r.junit, append([]byte(xml.Header), append(raw, '\n')...), 0o644)
	}
	if err != nil {
		return fmt.Errorf("write JUnit file: %w", err)
	}
	return nil
}

func junitOf(workflow string, j adminwire.Job) junitSuite {
	s := junitSuite{Name: workflow + " / " + j.JobName, Time: seconds(j.DurationMs)}
	for _, step := range j.Steps {
		s.add(junitCase{Name: step.StepName, Class: s.Name, Time: seconds(step.DurationMs)}, step.Status == ci.StepFailed, step.Status == ci.StepSuccess, console.Text(step.ErrorMessage))
	}
	if s.Failures == 0 && (len(s.Cases) == 0 || j.Status.FailsRun()) {
		s.add(junitCase{Name: j.JobName, Class: s.Name, Time: s.Time}, j.Status.FailsRun(), j.Status == ci.JobSuccess, console.Text(j.ErrorMessage))
	}
	return s
}

func (s *junitSuite) add(c junitCase, failed, passed bool, why string) {
	s.Tests++
	switch {
	case failed:
		s.Failures++
		c.Failure = &junitNote{why}
	case !passed:
		s.Skipped++
		c.Skipped = &junitNote{why}
	}
	s.Cases = append(s.Cases, c)
}

// seconds are how JUnit writes times.
func seconds(ms *int64) string {
	if ms == nil {
		return "0.000"
	}
	return strconv.FormatFloat(float64(*ms)/1000, 'f', 3, 64)
}
