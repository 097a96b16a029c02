package hub

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"kici/internal/core/ci"
	"kici/internal/core/wire"
)

func TestWordsAboutOneJobStandTogetherUpToItsEnd(t *testing.T) {
	s1, s2, other := step("j", "1", "s"), step("j", "2", "s"), step("k", "3", "s")
	runs, ends, log, more := status("j", "4", ci.JobRunning), status("j", "5", ci.JobSuccess), chunk("j", 0, "6", "x"), chunk("j", 0, "7", "y")
	others, beat, answer := chunk("k", 0, "8", "z"), wire.Heartbeat{}, wire.JobAck{MessageID: "9", RunID: "r", JobID: "j", Timestamp: 1}
	of := func(m ...wire.Message) []wire.Message { return m }
	for name, tt := range map[string]struct{ frames, chunks, words []wire.Message }{
		"one":                    {of(s1), nil, of(s1)},
		"states and steps":       {of(runs, s1, s2), nil, of(runs, s1, s2)},
		"nothing after the end":  {of(s1, ends, s2), nil, of(s1, ends)},
		"no log after the end":   {of(s1, ends, log), nil, of(s1, ends)},
		"the end first":          {of(ends, s2), nil, of(ends)},
		"another job":            {of(s1, other, s2), nil, of(s1)},
		"a log between":          {of(s1, log, s2, more, ends), of(log, more), of(s1, s2, ends)},
		"a log before":           {of(log, s1, s2), of(log), of(s1, s2)},
		"a log alone":            {of(log, more), of(log, more), nil},
		"the log of another job": {of(s1, others, s2), nil, of(s1)},
		"an answer":              {of(answer, runs, log, s1, ends), of(log), of(answer, runs, s1, ends)},
		"another frame":          {of(beat, s1, s2), nil, of(beat)},
		"another frame between":  {of(s1, beat, s2), nil, of(s1)},
	} {
		t.Run(name, func(t *testing.T) {
			chunks, words, rest := stretch(tt.frames)
			got := [][]wire.Message{chunks, words, rest}
			if diff := cmp.Diff([][]wire.Message{tt.chunks, tt.words, tt.frames[len(tt.chunks)+len(tt.words):]}, got, cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// blocked is a bench whose engine waits before it takes what is said of a job, and an agent of which a first word waits so.
func blocked(t *testing.T) (*bench, *peer) {
	t.Helper()
	b := newBench(t)
	b.engine.gate = make(chan struct{})
	b.engine.give("a", "j", "k")
	p, _ := b.join(t, agent("a", wire.FeatureFrameAck))
	p.send(status("j", "1", ci.JobRunning))
	b.engine.await(t, "1 words")
	return b, p
}

// awaitBacklog waits until so many frames of the agent have been read ahead.
func (b *bench) awaitBacklog(t *testing.T, agentID string, n int) {
	t.Helper()
	c := b.current(agentID)
	for deadline := time.Now().Add(patience); c.ahead() < n; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d frames read ahead, want %d", c.ahead(), n)
		}
	}
}

func (c *conn) ahead() int {
	c.backlog.mu.Lock()
	defer c.backlog.mu.Unlock()
	return len(c.backlog.frames)
}

func TestWhatComesWhileAFrameIsAppliedIsAppliedTogether(t *testing.T) {
	b, p := blocked(t)
	p.send(step("j", "2", "s"))
	p.send(step("j", "3", "t"))
	p.send(status("j", "4", ci.JobSuccess))
	p.send(step("k", "5", "s"))
	b.awaitBacklog(t, "a", 4)
	close(b.engine.gate)
	for _, id := range []string{"1", "2", "3", "4", "5"} {
		if got := expect[wire.Ack](p); got.MessageID != id {
			t.Errorf("acknowledged %q, want %q", got.MessageID, id)
		}
	}
	want := []string{"connected a", "1 words", "job j running", "3 words", "step j s success", "step j t success", "job j success", "1 words", "step k s success"}
	if diff := cmp.Diff(want, b.engine.seen()); diff != "" {
		t.Error(diff)
	}
}

func TestAPingIsAnsweredInItsTurn(t *testing.T) {
	b, p := blocked(t)
	p.send(step("j", "2", "s"))
	answered := make(chan error, 1)
	go func() { answered <- p.ws.Ping(t.Context()) }()
	go func() {
		for {
			if _, err := p.read(); err != nil { // somebody must read for the answer to be seen
				return
			}
		}
	}()
	b.awaitBacklog(t, "a", 1)
	select {
	case err := <-answered:
		t.Fatalf("answered before what came before it was applied: %v", err)
	default:
	}
	close(b.engine.gate)
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	if calls := b.engine.seen(); !slices.Contains(calls, "step j s success") {
		t.Errorf("calls %q", calls)
	}
}

func TestWordsThatCannotBeTakenTogetherAreTakenOneByOne(t *testing.T) {
	b, p := blocked(t)
	b.engine.refuse = func(call string) error {
		if call == "3 words" || call == "step j bad success" {
			return errRefusedValue
		}
		return nil
	}
	p.send(step("j", "2", "good"))
	p.send(step("j", "3", "bad"))
	p.send(step("j", "4", "late"))
	b.awaitBacklog(t, "a", 3)
	close(b.engine.gate)
	var acknowledged []string
	for range 4 {
		m, err := p.read()
		if err != nil {
			t.Fatal(err)
		}
		if ack, ok := m.(wire.Ack); ok {
			acknowledged = append(acknowledged, ack.MessageID)
		}
	}
	if want := []string{"1", "2", "3"}; !slices.Equal(acknowledged, want) {
		t.Errorf("acknowledged %q, want %q", acknowledged, want)
	}
	if calls := b.engine.seen(); !slices.Contains(calls, "step j good success") || !slices.Contains(calls, "job j failed") {
		t.Errorf("calls %q", calls)
	}
}

func TestAnAgentIsReadAheadUpToABound(t *testing.T) {
	b, p := blocked(t)
	const frames = 3 * maxBacklog
	for range frames {
		p.send(step("j", "2", "s"))
	}
	b.awaitBacklog(t, "a", maxBacklog)
	c := b.current("a")
	for deadline := time.Now().Add(patience); !c.busy.Load(); runtime.Gosched() { // so that its silence is not the agent's
		if time.Now().After(deadline) {
			t.Fatal("the reader is not held back")
		}
	}
	if ahead := c.ahead(); ahead != maxBacklog {
		t.Errorf("%d frames read ahead, want %d", ahead, maxBacklog)
	}
	close(b.engine.gate)
	for range frames + 1 {
		expect[wire.Ack](p)
	}
}

func TestWhatWaitsOfAConnectionIsLeftToTheNextOfItsAgent(t *testing.T) {
	b, p := blocked(t)
	p.send(step("j", "2", "old"))
	b.awaitBacklog(t, "a", 1)
	next, _ := b.join(t, agent("a", wire.FeatureFrameAck))
	close(b.engine.gate)
	next.send(step("j", "2", "new"))
	expect[wire.Ack](next)
	if calls := b.engine.seen(); slices.Contains(calls, "step j old success") || !slices.Contains(calls, "step j new success") {
		t.Errorf("calls %q", calls)
	}
}

func TestTheOnlyThingThatALogSaysIsStoredWithWhatIsSaidOfItsJob(t *testing.T) {
	b, p := blocked(t)
	p.send(step("j", "2", "s"))
	p.send(chunk("j", 0, "3", "line"))
	p.send(status("j", "4", ci.JobSuccess))
	b.awaitBacklog(t, "a", 3)
	close(b.engine.gate)
	var acknowledged []string
	for range 4 {
		acknowledged = append(acknowledged, expect[wire.Ack](p).MessageID)
	}
	if diff := cmp.Diff([]string{"1", "3", "2", "4"}, acknowledged); diff != "" {
		t.Error(diff)
	}
	want := []string{"connected a", "1 words", "job j running", "2 words", "step j s success", "job j success"}
	if diff := cmp.Diff(want, b.engine.seen()); diff != "" {
		t.Error(diff)
	}
	if lines := b.logs.lines(); len(lines) != 1 || b.logs.along.Load() != 1 {
		t.Errorf("stored %q, %d of it along", lines, b.logs.along.Load())
	}
}

// A log that cannot be stored keeps nothing of what is said of its job from being stored, and is told of as ever.
func TestWhereALogCannotBeStoredWithItTheRestIsTakenByItself(t *testing.T) {
	b, p := blocked(t)
	b.logs.fail = errRefusedValue
	p.send(chunk("j", 0, "2", "line"))
	p.send(step("j", "3", "s"))
	b.awaitBacklog(t, "a", 2)
	close(b.engine.gate)
	for {
		if _, err := p.read(); err != nil {
			t.Fatal("the connection ended")
		}
		if calls := b.engine.seen(); slices.Contains(calls, "job j failed") {
			return
		}
	}
}

func TestTheAnswerToADispatchIsTakenWithWhatTheAgentSaysNext(t *testing.T) {
	for name, fenced := range map[string]bool{"in time": false, "too late": true} {
		t.Run(name, func(t *testing.T) {
			b, p := blocked(t)
			b.engine.fenced["k"] = fenced
			p.send(wire.JobAck{MessageID: "2", RunID: "r", JobID: "k", Timestamp: 1})
			p.send(status("k", "3", ci.JobRunning))
			b.awaitBacklog(t, "a", 2)
			close(b.engine.gate)
			b.engine.await(t, "job k running")
			want := []string{"connected a", "1 words", "job j running", "2 words", "acked k"}
			if fenced { // each by itself, so that the agent is told to stop
				want = append(want, "1 words")
				for {
					m, err := p.read()
					if err != nil {
						t.Fatal(err)
					}
					if _, ok := m.(wire.JobCancel); ok {
						break
					}
				}
			}
			if diff := cmp.Diff(append(want, "job k running"), b.engine.seen()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestOnlyAnAnswerForWhichNobodyWaitsIsLeftForAMoment(t *testing.T) {
	answer, runs := wire.JobAck{MessageID: "1", RunID: "r", JobID: "j", Timestamp: 1}, status("j", "2", ci.JobRunning)
	b := newBench(t)
	b.join(t, agent("plain"))
	b.join(t, agent("fenced", wire.FeatureStartFence))
	for _, tt := range []struct {
		agent  string
		frames []wire.Message
		want   bool
	}{
		{"plain", []wire.Message{answer}, true},
		{"plain", []wire.Message{answer, runs}, false},
		{"plain", []wire.Message{runs}, false},
		{"fenced", []wire.Message{answer}, false},
	} {
		if got := b.current(tt.agent).mayWait(tt.frames); got != tt.want {
			t.Errorf("%s: %d frames: %t", tt.agent, len(tt.frames), got)
		}
	}
}
