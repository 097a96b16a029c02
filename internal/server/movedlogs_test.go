package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"kici/internal/core/adminwire"
	"kici/internal/core/ci"
	"kici/internal/core/wire"
	"kici/internal/server/cluster"
	"kici/internal/server/servertest"
	"kici/internal/server/store"
)

// traveller is an agent that takes its job from node to node and numbers the lines of its log.
type traveller struct {
	*servertest.Peer
	t   *testing.T
	job wire.JobDispatch
	at  int64
}

func (a *traveller) chunk(id string, lines ...string) {
	a.t.Helper()
	a.at++
	a.Send(wire.LogChunk{MessageID: id, RunID: a.job.RunID, JobID: a.job.JobID, Lines: lines, Timestamp: a.at})
	a.Settle()
}

// again sends a chunk of the last moment once more.
func (a *traveller) again(id string, lines ...string) {
	a.t.Helper()
	a.at--
	a.chunk(id, lines...)
}

// goTo connects to another node with the job.
func (a *traveller) goTo(h *servertest.Home) {
	a.t.Helper()
	a.Cut()
	a.Peer = h.Dial(a.t)
	r := register("traveller")
	r.InFlightJobs = []wire.InFlightJob{{RunID: a.job.RunID, JobID: a.job.JobID}}
	a.Hello(h, r)
	a.Settle()
}

// path is the log's.
func (a *traveller) path(more string) string {
	return fmt.Sprintf("/api/v1/admin/runs/%s/jobs/%s/steps/0/logs%s", a.job.RunID, a.job.JobID, more)
}

// threeNodes starts three nodes and an agent at the second that runs a job.
func threeNodes(t *testing.T) (homes []*servertest.Home, running []*servertest.Running, a *traveller) {
	t.Helper()
	first, second := twoNodes(t, nil)
	homes = []*servertest.Home{first, second, first.Second(t)}
	for _, h := range homes {
		running = append(running, h.Start(t))
	}
	a = &traveller{Peer: second.Dial(t), t: t, at: 1000}
	a.Hello(second, register("traveller"))
	first.Push(t, app, "main", first.Commit(t, app, servertest.Lock("build")))
	var ok bool
	if a.job, ok = a.Next().(wire.JobDispatch); !ok {
		t.Fatal("no dispatch")
	}
	a.Send(wire.JobStatus{MessageID: "m", RunID: a.job.RunID, JobID: a.job.JobID, State: ci.JobRunning, Timestamp: 1})
	a.Send(wire.StepStatus{MessageID: "s", RunID: a.job.RunID, JobID: a.job.JobID, StepName: "s", State: ci.StepRunning, Timestamp: 1})
	return homes, running, a
}

func messagesOf(t *testing.T, stored []string) []string {
	t.Helper()
	var out []string
	for _, line := range stored {
		var l struct{ Msg string }
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		out = append(out, l.Msg)
	}
	return out
}

func read[T any](t *testing.T, h *servertest.Home, path string) (out T) {
	t.Helper()
	status, body := call(t, h, "GET", path, "")
	if status != http.StatusOK {
		t.Fatalf("%s: %d %s", path, status, body)
	}
	if err := json.Unmarshal([]byte(body), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func pageOf(t *testing.T, h *servertest.Home, path string) (lines []string, page adminwire.LogPage) {
	t.Helper()
	page = read[adminwire.LogPage](t, h, path)
	for _, l := range page.Lines {
		lines = append(lines, l.Value)
	}
	return messagesOf(t, lines), page
}

// TestTheLogOfAJobThatMovesIsOne takes an agent with its job from node to node and back. Whichever node is asked gives the
// whole log; then a node is gone, and what the others have is given with a word about what is missing.
func TestTheLogOfAJobThatMovesIsOne(t *testing.T) {
	homes, running, a := threeNodes(t)
	a.chunk("c0", "line 0", "line 1")
	a.chunk("c1", "line 2")
	a.goTo(homes[2])
	a.again("c1", "line 2") // the agent had not heard that it was stored
	a.chunk("c2", "line 3", "line 4")
	a.goTo(homes[1])
	a.chunk("c3", "line 5")
	want := []string{"line 0", "line 1", "line 2", "line 3", "line 4", "line 5"}
	for i, h := range homes {
		requireLog(t, fmt.Sprint("node ", i), h, a, want)
	}
	followed := make(chan []string, 1)
	go func() {
		lines, _ := pageOf(t, homes[0], a.path("?cursor=6&wait=25s"))
		followed <- lines
	}()
	a.goTo(homes[2])
	a.chunk("c4", "line 6")
	if got := <-followed; !slices.Equal(got, []string{"line 6"}) {
		t.Errorf("followed at the first node: %q", got)
	}

	running[1].Stop()
	away := fmt.Sprintf("[lines may be missing here: the job was with node %s, which does not answer]", running[1].NodeID())
	for _, h := range []*servertest.Home{homes[0], homes[2]} {
		requireLog(t, "without the second node", h, a, []string{away, "line 2", "line 3", "line 4", "line 6"})
	}
	err := homes[0].DB.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error { return cluster.Bury(ctx, tx, running[1].NodeID()) })
	if err != nil {
		t.Fatal(err)
	}
	gone := strings.Replace(away, "does not answer", "is gone", 1)
	requireLog(t, "when the node is buried", homes[0], a, []string{gone, "line 2", "line 3", "line 4", "line 6"})
}

// requireLog reads a log in every way.
func requireLog(t *testing.T, what string, h *servertest.Home, a *traveller, want []string) {
	t.Helper()
	lines, page := pageOf(t, h, a.path(""))
	if !slices.Equal(lines, want) || page.TotalLines != int64(len(want)) || page.NextCursor != nil {
		t.Errorf("%s: %q of %d", what, lines, page.TotalLines)
	}
	if lines, page = pageOf(t, h, a.path("?cursor=1&limit=3")); !slices.Equal(lines, want[1:4]) || page.NextCursor == nil || *page.NextCursor != "4" {
		t.Errorf("%s: from line 1 %q, then %v", what, lines, page.NextCursor)
	}
	if lines, _ = pageOf(t, h, a.path("?tail=3")); !slices.Equal(lines, want[len(want)-3:]) {
		t.Errorf("%s: the end is %q", what, lines)
	}
	found := read[adminwire.LogSearch](t, h, a.path("/search?q=line&cursor=1"))
	var hits []string
	for _, m := range found.Matches {
		if m.Text.Value != want[m.Line] {
			t.Errorf("%s: line %d found as %q", what, m.Line, m.Text.Value)
		}
		hits = append(hits, m.Text.Value)
	}
	if !slices.Equal(hits, want[1:]) {
		t.Errorf("%s: found %q", what, hits)
	}
	status, whole := call(t, h, "GET", a.path("/raw"), "")
	var raw []string
	for s := bufio.NewScanner(strings.NewReader(whole)); s.Scan(); {
		raw = append(raw, s.Text())
	}
	if got := messagesOf(t, raw); status != http.StatusOK || !slices.Equal(got, want) {
		t.Errorf("%s: downloaded %d %q", what, status, got)
	}
	requireRange(t, what, h, a.path("/raw"), whole)
}

// requireRange asks for a part of the bytes, as a download that goes on does.
func requireRange(t *testing.T, what string, h *servertest.Home, path, whole string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", h.URL()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Range", "bytes=100-")
	if status, rest := send(t, req, adminToken); status != http.StatusPartialContent || rest != whole[100:] {
		t.Errorf("%s: from byte 100 %d %q", what, status, rest)
	}
}

// TestLinesThatComeToAnotherNodeAfterTheEndAreOfTheLog ends a job at one node, while lines of it are still with the agent.
func TestLinesThatComeToAnotherNodeAfterTheEndAreOfTheLog(t *testing.T) {
	t.Parallel() // it waits more than it works
	homes, _, a := threeNodes(t)
	a.chunk("c0", "line 0", "line 1")
	a.Send(wire.JobStatus{MessageID: "e", RunID: a.job.RunID, JobID: a.job.JobID, State: ci.JobSuccess, Timestamp: 2})
	homes[0].AwaitRuns(t, 1)
	a.Cut()
	a.Peer = homes[2].Dial(t)
	a.Hello(homes[2], register("traveller"))
	a.chunk("c1", "line 2", "line 3", "line 4")
	for i, h := range homes {
		requireLog(t, fmt.Sprint("node ", i), h, a, []string{"line 0", "line 1", "line 2", "line 3", "line 4"})
	}
}

// TestAStepThatCannotHaveRunOnAGoneNodeMissesNothing asks for a step that began long after the job had left the node.
func TestAStepThatCannotHaveRunOnAGoneNodeMissesNothing(t *testing.T) {
	homes, running, a := threeNodes(t)
	a.Settle()
	a.goTo(homes[2])
	later := int64(1) << 42 // ms, far behind every stay
	a.Send(wire.StepStatus{MessageID: "s1", RunID: a.job.RunID, JobID: a.job.JobID, StepIndex: 1, StepName: "late", State: ci.StepRunning, Timestamp: later})
	a.Send(wire.LogChunk{MessageID: "c", RunID: a.job.RunID, JobID: a.job.JobID, StepIndex: 1, Lines: []string{"late"}, Timestamp: later})
	a.Settle()
	running[1].Stop()
	lines, _ := pageOf(t, homes[0], strings.Replace(a.path(""), "steps/0", "steps/1", 1))
	if !slices.Equal(lines, []string{"late"}) {
		t.Errorf("got %q", lines)
	}
	if lines, _ = pageOf(t, homes[0], a.path("")); len(lines) != 1 || !strings.HasPrefix(lines[0], "[lines may be missing here") {
		t.Errorf("the step that began there: %q", lines)
	}
}
