package livetree

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/adminwire"
	"kici/internal/core/ci"
)

var update = flag.Bool("update", false, "write golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

const start = 1_767_225_600_000

func ptr[T any](v T) *T { return &v }

func running() (adminwire.RunDetail, []adminwire.Job) {
	run := adminwire.RunDetail{Run: adminwire.Run{RunID: "r", WorkflowName: "ci", RepoIdentifier: "app", Ref: "main", SHA: "0123456789", Status: ci.RunRunning, StartedAt: adminwire.At(start)}}
	jobs := []adminwire.Job{
		{JobID: "1", JobName: "build", Status: ci.JobSuccess, DurationMs: ptr(int64(3200)), Steps: []adminwire.Step{
			{StepName: "checkout", Status: ci.StepSuccess, DurationMs: ptr(int64(120))}, {StepName: "compile", StepIndex: 1, Status: ci.StepSuccess, DurationMs: ptr(int64(3000))}}},
		{JobID: "2", JobName: "test \x1b[31mred\x1b[0m", Status: ci.JobRunning, StartedAt: adminwire.At(start + 3_000), AgentID: ptr("a-1"), Steps: []adminwire.Step{
			{StepName: "unit", Status: ci.StepRunning, StartedAt: adminwire.At(start + 4_000)}}},
		{JobID: "3", JobName: "gpu", Status: ci.JobPending, Reason: &ci.Reason{Code: ci.ReasonNoAgent, Message: "no connected agent fits; the nearest, a-1, lacks label gpu"}},
	}
	return run, jobs
}

func ended() (adminwire.RunDetail, []adminwire.Job) {
	run, jobs := running()
	run.Status, run.DurationMs, run.FailureReason = ci.RunFailed, ptr(int64(65_000)), ptr("1 of 3 jobs failed: test")
	jobs[1].Status, jobs[1].DurationMs, jobs[1].ErrorMessage = ci.JobFailed, ptr(int64(61_000)), ptr("exit code 2")
	jobs[1].Steps[0].Status, jobs[1].Steps[0].DurationMs, jobs[1].Steps[0].ErrorMessage = ci.StepFailed, ptr(int64(60_500)), ptr("exit code 2")
	jobs[2].Status, jobs[2].Reason = ci.JobSkipped, &ci.Reason{Code: ci.ReasonUpstreamUnmet, Message: "upstream_unmet: test (failed)"}
	return run, jobs
}

func draw(out *strings.Builder, width, height int, colour bool) *Tree {
	return New(out, Options{Size: func() (int, int) { return width, height }, Colour: colour, Now: func() time.Time { return time.UnixMilli(start + 12_345) }})
}

func TestTreeIsDrawnOverItself(t *testing.T) {
	var out strings.Builder
	tree := draw(&out, 80, 30, false)
	tree.Show(running())
	tree.Line(adminwire.LogName{JobID: "2"}, "\x1b]0;title\x07ok  \x1b[32mpkg/foo\x1b[0m 0.3s\r")
	tree.Show(running())
	tree.Show(ended())
	tree.Close()
	golden(t, "tree.txt", strings.ReplaceAll(out.String(), "\x1b", "<esc>"))
}

func TestTreeFitsItsTerminal(t *testing.T) {
	for _, tt := range []struct {
		name          string
		width, height int
		golden        string
	}{
		{"narrow", 24, 30, "narrow.txt"},
		{"low, without the steps of ended jobs", 80, 7, "low.txt"},
		{"lower still", 80, 4, "lower.txt"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			draw(&out, tt.width, tt.height, false).Show(running())
			golden(t, tt.golden, strings.ReplaceAll(out.String(), "\x1b", "<esc>"))
		})
	}
}

func TestTreeHasColoursWhereAllowed(t *testing.T) {
	var out strings.Builder
	draw(&out, 80, 30, true).Show(ended())
	if !strings.Contains(out.String(), "\x1b[32m✓") || !strings.Contains(out.String(), "\x1b[31m✗") {
		t.Errorf("%q", out.String())
	}
}

func TestPlainWritesOnlyWhatChanged(t *testing.T) {
	var out strings.Builder
	plain := NewPlain(&out)
	plain.Show(running())
	plain.Show(running())
	plain.Line(adminwire.LogName{Job: "test", Step: "unit"}, "one\x1b[2Jline")
	plain.Show(ended())
	plain.Close()
	golden(t, "plain.txt", out.String())
}

func TestTextFromOutsideCannotDriveTheTerminal(t *testing.T) {
	tests := []struct{ name, in, plain, coloured string }{
		{"plain text", "a\tb ü", "a b ü", "a b ü"},
		{"colour", "\x1b[1;31mred", "red", "\x1b[1;31mred\x1b[0m"},
		{"cursor and screen", "\x1b[2J\x1b[10;5Hx\x1b[?25l", "x", "x"},
		{"title with either end", "\x1b]0;t\x07a\x1b]0;t\x1b\\b", "ab", "ab"},
		{"clipboard without an end", "a\x1b]52;c;AAAA", "a", "a"},
		{"control characters", "ab\x08\x00\u009bc", "abc", "abc"},
		{"lines stay apart", "exit 3\nno such file\r\ngone", "exit 3 no such file  gone", "exit 3 no such file  gone"},
		{"a line that was written over", "10%\r20%", "10% 20%", "10% 20%"},
		{"order of reading", "a\u202eb", "ab", "ab"},
		{"a lone escape", "a\x1b", "a", "a"},
	}
	for _, tt := range tests {
		if got := Clean(tt.in); got != tt.plain {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.plain)
		}
		if got := CleanColours(tt.in); got != tt.coloured {
			t.Errorf("%s with colours: %q, want %q", tt.name, got, tt.coloured)
		}
	}
}

func FuzzClean(f *testing.F) {
	for _, seed := range []string{"a", "\x1b[31mx", "\x1b]0;t\x07", "\u009b1m", "\x1bP\x1b\\"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		if got := Clean(in); strings.ContainsAny(got, "\x1b\x07\r\n\x00\u009b") {
			t.Errorf("%q from %q", got, in)
		}
	})
}

func TestDurationsAreReadable(t *testing.T) {
	for d, want := range map[time.Duration]string{-time.Second: "0.0s", 440 * time.Millisecond: "0.4s", 59970 * time.Millisecond: "1m00s",
		185 * time.Second: "3m05s", 130 * time.Minute: "2h10m", 76 * time.Hour: "3d4h"} {
		if got := Duration(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}

// Steps may share a name; each has its own states, and none is written again because of the other.
func TestPlainTellsStepsOfOneNameApart(t *testing.T) {
	var out strings.Builder
	p := NewPlain(&out)
	jobs := []adminwire.Job{{JobID: "1", JobName: "build", Status: ci.JobRunning, Steps: []adminwire.Step{
		{StepName: "s", Status: ci.StepSuccess}, {StepName: "s", StepIndex: 1, Status: ci.StepRunning}}}}
	for range 3 {
		p.Show(adminwire.RunDetail{}, jobs)
	}
	p.Line(adminwire.LogName{Job: "build"}, "said outside of steps")
	if got := strings.Count(out.String(), "build › s"); got != 2 || !strings.Contains(out.String(), "build                        | said outside of steps\n") {
		t.Errorf("%d states of steps:\n%s", got, out.String())
	}
}

// Jobs may share a name, and steps of one job. Each shows its own last line.
func TestTheTreeTellsStepsOfOneNameApart(t *testing.T) {
	var out strings.Builder
	tree := draw(&out, 80, 30, false)
	steps := []adminwire.Step{{StepName: "s", Status: ci.StepRunning}, {StepName: "s", StepIndex: 1, Status: ci.StepRunning}}
	jobs := []adminwire.Job{{JobID: "1", JobName: "test", Status: ci.JobRunning, Steps: steps}, {JobID: "2", JobName: "test", Status: ci.JobRunning, Steps: steps},
		{JobID: "3", JobName: "test", Status: ci.JobRunning}, {JobID: "4", JobName: "test", Status: ci.JobRunning}}
	for i, j := range jobs {
		for _, s := range j.Steps {
			tree.Line(j.Log(s), fmt.Sprintf("line of %s/%d", j.JobID, s.StepIndex))
		}
		if i == 2 {
			tree.Line(j.Log(j.OwnLog()), "line of 3 itself")
		}
	}
	tree.Show(adminwire.RunDetail{Run: adminwire.Run{RunID: "r"}}, jobs)
	for _, want := range []string{"line of 1/0", "line of 1/1", "line of 2/0", "line of 2/1", "line of 3 itself"} {
		if strings.Count(out.String(), want) != 1 {
			t.Errorf("%q is not there once:\n%s", want, out.String())
		}
	}
}
