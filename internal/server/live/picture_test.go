package live

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"kici/internal/core/adminwire"
	"kici/internal/core/ci"
)

// pictures draws a run with up to four jobs of up to three steps each. Names are few, so that pictures resemble each other.
func pictures(t *rapid.T, name string) picture {
	p := picture{run: adminwire.RunDetail{Run: adminwire.Run{RunID: "r", Status: rapid.SampledFrom(ci.RunStatuses).Draw(t, name+" run")}}}
	for i := range rapid.IntRange(0, 4).Draw(t, name+" jobs") {
		j := adminwire.Job{JobID: fmt.Sprint("j", i), JobName: fmt.Sprint("job ", i), Status: rapid.SampledFrom(ci.JobStatuses).Draw(t, name+" job")}
		for k := range rapid.IntRange(0, 3).Draw(t, name+" steps") {
			s := adminwire.Step{StepIndex: k, StepName: fmt.Sprint("step ", k), Status: rapid.SampledFrom(ci.StepStatuses).Draw(t, name+" step")}
			j.Steps = append(j.Steps, s)
		}
		p.jobs = append(p.jobs, j)
	}
	return p
}

// grown adds to a picture what the one before had, since steps and jobs that were there once stay.
func grown(old, new picture) picture {
	for i, j := range old.jobs {
		if i >= len(new.jobs) {
			new.jobs = append(new.jobs, j)
		} else if len(new.jobs[i].Steps) < len(j.Steps) {
			new.jobs[i].Steps = append(new.jobs[i].Steps, j.Steps[len(new.jobs[i].Steps):]...)
		}
	}
	return new
}

func noLines(adminwire.Job, adminwire.Step) []adminwire.Observed { return nil }

func TestChangesLeadFromOnePictureToTheNext(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		old := pictures(rt, "old")
		new := grown(old, pictures(rt, "new"))
		messages, leads := changes(old, new, noLines)
		if !leads {
			rt.Fatal("no job has gone")
		}
		a := audience{picture: picture{run: old.run, jobs: clone(old.jobs)}}
		for i, m := range messages {
			m.Sequence = int64(i + 1)
			a.see(t, m, "")
		}
		if diff := cmp.Diff([]any{new.run, new.jobs}, []any{a.run, a.jobs}); diff != "" {
			rt.Fatal(diff)
		}
		if ended := new.run.Status.Terminal() && old.run.Status != new.run.Status; a.ended != ended {
			rt.Fatalf("told of the end: %v, want %v", a.ended, ended)
		}
		if again, _ := changes(new, new, noLines); len(again) > 0 {
			rt.Fatalf("nothing has changed and yet: %+v", again)
		}
	})
}

func clone(jobs []adminwire.Job) []adminwire.Job {
	var out []adminwire.Job
	for _, j := range jobs {
		j.Steps = append([]adminwire.Step(nil), j.Steps...)
		out = append(out, j)
	}
	return out
}

func TestAJobThatIsGoneNeedsTheWholePicture(t *testing.T) {
	old := picture{jobs: []adminwire.Job{{JobID: "placeholder"}}}
	if _, leads := changes(old, picture{jobs: []adminwire.Job{{JobID: "child"}}}, noLines); leads {
		t.Error("viewers would keep the job")
	}
}

func TestWhatEndsIsToldAfterWhatItIsMadeOf(t *testing.T) {
	old := picture{run: adminwire.RunDetail{Run: adminwire.Run{Status: ci.RunRunning}},
		jobs: []adminwire.Job{{JobID: "j", Status: ci.JobRunning, Steps: []adminwire.Step{{Status: ci.StepRunning}}}}}
	new := picture{run: adminwire.RunDetail{Run: adminwire.Run{Status: ci.RunSuccess}},
		jobs: []adminwire.Job{{JobID: "j", Status: ci.JobSuccess, Steps: []adminwire.Step{{Status: ci.StepSuccess}}}}}
	messages, _ := changes(old, new, func(j adminwire.Job, s adminwire.Step) []adminwire.Observed {
		if s.StepIndex == adminwire.OwnLogIndex {
			return []adminwire.Observed{lineMessage(j, s, 0, []string{"the job's own"})}
		}
		return []adminwire.Observed{lineMessage(j, s, 0, []string{`{"ts":"2026-01-01T00:00:00.000Z","msg":"last"}`, "of another form"})}
	})
	var order []string
	for _, m := range messages {
		order = append(order, fmt.Sprint(m.Type, " ", m.Status, m.State, m.Lines))
	}
	want := []string{"observe.log [the job's own]", "observe.log [last of another form]", "observe.step success[]", "observe.status success[]", "observe.status success[]", "observe.complete success[]"}
	if diff := cmp.Diff(want, order); diff != "" {
		t.Error(diff)
	}
}
