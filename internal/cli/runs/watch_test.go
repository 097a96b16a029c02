package runs_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"kici/internal/cli"
	"kici/internal/core/adminwire"
	"kici/internal/core/ci"
	"kici/internal/core/wire"
	"kici/internal/server"
	"kici/internal/server/servertest"
)

// screenBuffer is an output that is read while it is written.
type screenBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *screenBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *screenBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// Who looks on sees the run to its end over a restart of the server, with every line once, also while it is asked what jobs
// wait for and what has been said.
func TestWatchingGoesOnOverARestart(t *testing.T) {
	for _, verb := range [][]string{{"watch"}, {"watch", "--json"}, {"logs", "--follow"}} {
		t.Run(strings.Join(verb, " "), func(t *testing.T) { goesOn(t, verb) })
	}
}

func goesOn(t *testing.T, verb []string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	listener.Close()
	home := servertest.New(t, func(s *server.Settings) { s.Port = port })
	first := home.Start(t)
	agent := home.Employ(t, &servertest.Agent{ID: "a-1", Features: []string{wire.FeatureFrameAck, wire.FeatureStartFence}, Hold: true, Chunks: 4})
	home.Push(t, "app", "main", home.Commit(t, "app", servertest.Lock("build", "after<build")))
	servertest.Await(t, "the start of the job", func() bool {
		return home.Count(t, "SELECT count(*) FROM execution_jobs WHERE status = 'running'") == 1
	}, nil)
	_, listed, _ := kici(t, home, "runs", "list", "--json")
	run := regexp.MustCompile(`"runId": "([^"]+)"`).FindStringSubmatch(listed)[1]
	var out, complaints screenBuffer
	ended := make(chan int, 1)
	go func() {
		ended <- cli.Run(t.Context(), append([]string{"kici", "admin", "runs", verb[0], run}, verb[1:]...),
			cli.Process{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &complaints, Environ: append(os.Environ(), "KICI_DATA_DIR="+home.Settings.DataDir)})
	}()
	sign := map[string]string{"watch": "running", "logs": "line 0"}[verb[0]]
	servertest.Await(t, "a sign that it looks on", func() bool { return strings.Contains(out.String(), sign) }, out.String)
	first.Stop()
	select { // longer than anybody who looks on waits before the next look
	case code := <-ended:
		t.Fatalf("exit code %d while the server is away: %s%s", code, out.String(), complaints.String())
	case <-time.After(2 * time.Second):
	}
	home.Start(t)
	agent.Release()
	if code := <-ended; code != 0 {
		t.Fatalf("exit code %d: %s%s", code, out.String(), complaints.String())
	}
	got := out.String()
	if len(verb) > 1 && verb[1] == "--json" {
		eachLineOnce(t, got, map[string]int64{"build": 4, "after": 4})
		return
	}
	for _, want := range []string{"build › s", "after › s"} {
		for line := range 4 {
			if n := len(regexp.MustCompile(fmt.Sprintf(`(?m)^%s +\| line %d$`, want, line)).FindAllString(got, -1)); n != 1 {
				t.Errorf("line %d of %s is there %d times: %s", line, want, n, got)
			}
		}
	}
	if verb[0] == "watch" && (!strings.Contains(got, "run ci") || !strings.Contains(got, "success")) {
		t.Error(got)
	}
}

// eachLineOnce tells whether a stream of messages has the lines of the jobs' steps from the first to the last, each once, before
// the job is said to have ended, and ends with the end of the run.
func eachLineOnce(t *testing.T, stream string, want map[string]int64) {
	t.Helper()
	got, last := map[string]int64{}, adminwire.Observed{}
	for raw := range strings.Lines(stream) {
		var m adminwire.Observed
		if err := json.Unmarshal([]byte(raw), &m); err != nil {
			t.Fatalf("%v: %s", err, raw)
		}
		last = m
		if m.Type == adminwire.ObserveGap {
			t.Errorf("lines are missing: %s", raw)
		}
		if m.Type == adminwire.ObserveLog && *m.StepIndex >= 0 {
			if *m.From != got[m.JobName] {
				t.Errorf("line %d of %s where line %d comes next:\n%s", *m.From, m.JobName, got[m.JobName], stream)
			}
			got[m.JobName] = *m.From + int64(len(m.Lines))
		}
		if m.Job != nil && m.Job.Status.Terminal() && got[m.JobName] != want[m.JobName] {
			t.Errorf("%s has ended, and %d of its %d lines were told before:\n%s", m.JobName, got[m.JobName], want[m.JobName], stream)
		}
	}
	if !maps.Equal(got, want) || last.Type != adminwire.ObserveComplete {
		t.Errorf("lines %v, want %v; the last message is %s:\n%s", got, want, last.Type, stream)
	}
}

// A stream leaves lines out when they are too many. Programs get them from the log, in their place; what is not there any more
// is told as a gap.
func TestGapsOfAStreamAreClosedOrTold(t *testing.T) {
	for _, tt := range []struct {
		name   string
		stored int64 // lines that the log still has of five
		want   string
	}{
		{"closed", 5, `snapshot 0:l0 1:l1,l2 3:l3 4:l4 complete`},
		{"told", 2, `snapshot 0:l0 1:l1 gap:2+1 3:l3 complete`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "/events/stream") {
					for i, m := range []string{`"type":"observe.snapshot","run":{"runId":"r","status":"running"},"jobs":[{"jobId":"j","jobName":"build","status":"running"}]`,
						`"type":"observe.log","jobId":"j","jobName":"build","stepIndex":0,"stepName":"s","from":0,"lines":["l0"]`,
						`"type":"log.gap","jobId":"j","jobName":"build","stepIndex":0,"stepName":"s","from":1,"droppedLineCount":2`,
						`"type":"observe.log","jobId":"j","jobName":"build","stepIndex":0,"stepName":"s","from":3,"lines":["l3"]`,
						`"type":"observe.step","jobId":"j","jobName":"build","step":{"stepIndex":0,"stepName":"s","status":"success"}`,
						`"type":"observe.complete","status":"success"`} {
						fmt.Fprintf(w, "id: %d\ndata: {\"sequence\":%d,%s}\n\n", i+1, i+1, m)
					}
					return
				}
				page := adminwire.LogPage{Lines: []adminwire.Untrusted{}}
				from, _ := strconv.ParseInt(r.URL.Query().Get("cursor"), 10, 64)
				limit, _ := strconv.ParseInt(r.URL.Query().Get("limit"), 10, 64)
				if strings.Contains(r.URL.Path, "/steps/0/") {
					for n := from; n < min(tt.stored, from+limit); n++ {
						page.Lines = append(page.Lines, adminwire.Untrusted{Value: fmt.Sprintf(`{"ts":"2026-01-01T00:00:0%d.000Z","msg":"l%d"}`, n, n)})
					}
				}
				_ = json.NewEncoder(w).Encode(page)
			}))
			defer web.Close()
			var out, complaints screenBuffer
			code := cli.Run(t.Context(), []string{"kici", "admin", "runs", "watch", "r", "--json"}, cli.Process{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &complaints,
				Environ: append(os.Environ(), "KICI_ADMIN_URL="+web.URL, "KICI_ADMIN_TOKEN=t")})
			var got []string
			for raw := range strings.Lines(out.String()) {
				var m adminwire.Observed
				if err := json.Unmarshal([]byte(raw), &m); err != nil {
					t.Fatalf("%v: %s", err, raw)
				}
				switch m.Type {
				case adminwire.ObserveLog:
					got = append(got, fmt.Sprintf("%d:%s", *m.From, strings.Join(m.Lines, ",")))
				case adminwire.ObserveGap:
					got = append(got, fmt.Sprintf("gap:%d+%d", *m.From, m.DroppedLineCount))
				case adminwire.ObserveSnapshot, adminwire.ObserveComplete:
					got = append(got, strings.TrimPrefix(m.Type, "observe."))
				}
			}
			if told := strings.Join(got, " "); code != 0 || told != tt.want {
				t.Errorf("exit code %d, told %q, want %q\n%s%s", code, told, tt.want, out.String(), complaints.String())
			}
		})
	}
}

// kici runs a command against a home and gives what it printed.
func kici(t *testing.T, home *servertest.Home, args ...string) (code int, out, complaints string) {
	t.Helper()
	var o, e screenBuffer
	code = cli.Run(t.Context(), append([]string{"kici", "admin"}, args...),
		cli.Process{Stdin: strings.NewReader(""), Stdout: &o, Stderr: &e, Environ: append(os.Environ(), "KICI_DATA_DIR="+home.Settings.DataDir)})
	return code, o.String(), e.String()
}

// What a job says outside of its steps is all that there is of one that ends before its first step. Who looks on sees it as it
// comes, who comes later finds it before the steps.
func TestAJobsOwnLogIsShown(t *testing.T) {
	home := servertest.New(t, nil)
	home.Start(t)
	p := home.Dial(t)
	p.Hello(home, wire.AgentRegister{AgentID: "a-1", Labels: []string{"linux"}, MaxConcurrency: 1})
	home.Push(t, "app", "main", home.Commit(t, "app", servertest.Lock("build")))
	d, ok := p.Next().(wire.JobDispatch)
	if !ok {
		t.Fatal("no dispatch")
	}
	say := func(id string, step int, lines ...string) {
		p.Send(wire.LogChunk{MessageID: id, RunID: d.RunID, JobID: d.JobID, StepIndex: step, Lines: lines, Timestamp: 1})
	}
	p.Send(wire.JobStatus{MessageID: "r", RunID: d.RunID, JobID: d.JobID, State: ci.JobRunning, Timestamp: 1})
	p.Settle()
	var watched screenBuffer
	ended := make(chan int, 1)
	go func() {
		ended <- cli.Run(t.Context(), []string{"kici", "admin", "runs", "watch", "latest"},
			cli.Process{Stdin: strings.NewReader(""), Stdout: &watched, Stderr: &watched, Environ: append(os.Environ(), "KICI_DATA_DIR="+home.Settings.DataDir)})
	}()
	servertest.Await(t, "the first picture", func() bool { return strings.Contains(watched.String(), "running") }, watched.String)
	say("c1", -1, "cloning")
	servertest.Await(t, "a line of the job", func() bool { return strings.Contains(watched.String(), "| cloning") }, watched.String)
	p.Send(wire.StepStatus{MessageID: "s", RunID: d.RunID, JobID: d.JobID, StepName: "s", State: ci.StepRunning, Timestamp: 1})
	say("c2", 0, "in the step")
	p.Send(wire.StepStatus{MessageID: "e", RunID: d.RunID, JobID: d.JobID, StepName: "s", State: ci.StepSuccess, Timestamp: 1})
	say("c3", -1, "cleaning up")
	p.Send(wire.JobStatus{MessageID: "f", RunID: d.RunID, JobID: d.JobID, State: ci.JobSuccess, Timestamp: 1})
	if code := <-ended; code != 0 {
		t.Errorf("exit code %d", code)
	}
	for _, line := range []string{"build                        | cloning\n", "build › s                    | in the step\n", "build                        | cleaning up\n"} {
		if strings.Count(watched.String(), line) != 1 {
			t.Errorf("%q is not there once:\n%s", line, watched.String())
		}
	}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "build | cloning\nbuild | cleaning up\nbuild › s | in the step\n"},
		{[]string{"--follow"}, "build | cloning\nbuild | cleaning up\nbuild › s | in the step\n"},
		{[]string{"--grep", "c"}, "build | 1: cloning\nbuild | 2: cleaning up\n"},
		{[]string{"--job", "build", "--step", "-1"}, "cloning\ncleaning up\n"},
		{[]string{"--job", "build", "--step", "s"}, "in the step\n"},
		{[]string{"--job", "build", "--step", "-1", "--tail", "1"}, "cleaning up\n"},
	} {
		code, out, complaints := kici(t, home, append([]string{"runs", "logs", "latest"}, tt.args...)...)
		if code != 0 || out != tt.want {
			t.Errorf("%v: %d %s%s", tt.args, code, out, complaints)
		}
	}
	if code, out, complaints := kici(t, home, "runs", "logs", "latest", "--job", "build", "--step", "-1", "--raw"); code != 0 || strings.Count(out, "\n") != 2 {
		t.Errorf("--raw: %d %s%s", code, out, complaints)
	}
}

// The log of a job that ended before its first step is not nothing.
func TestTheLogOfAJobWithoutStepsIsPrinted(t *testing.T) {
	home := servertest.New(t, nil)
	home.Start(t)
	p := home.Dial(t)
	p.Hello(home, wire.AgentRegister{AgentID: "a-1", Labels: []string{"linux"}, MaxConcurrency: 1})
	home.Push(t, "app", "main", home.Commit(t, "app", servertest.Lock("build")))
	d, ok := p.Next().(wire.JobDispatch)
	if !ok {
		t.Fatal("no dispatch")
	}
	p.Send(wire.JobStatus{MessageID: "r", RunID: d.RunID, JobID: d.JobID, State: ci.JobRunning, Timestamp: 1})
	p.Settle()
	if code, _, complaints := kici(t, home, "runs", "logs", "latest"); code == 0 || !strings.Contains(complaints, "has started yet") {
		t.Errorf("before it said anything: %d %s", code, complaints)
	}
	p.Send(wire.LogChunk{MessageID: "c", RunID: d.RunID, JobID: d.JobID, StepIndex: -1, Lines: []string{"SyntaxError"}, Timestamp: 1})
	p.Send(wire.JobStatus{MessageID: "f", RunID: d.RunID, JobID: d.JobID, State: ci.JobFailed, Timestamp: 1})
	home.AwaitRuns(t, 1)
	if code, out, complaints := kici(t, home, "runs", "logs", "latest"); code != 0 || out != "build | SyntaxError\n" {
		t.Errorf("%d %s%s", code, out, complaints)
	}
}

// Agents may send the last lines of a step after its end, as the reference's does: they are of the log as long as the job goes on.
func TestLinesThatComeAfterTheEndOfTheirStepAreShown(t *testing.T) {
	home := servertest.New(t, nil)
	home.Start(t)
	p := home.Dial(t)
	p.Hello(home, wire.AgentRegister{AgentID: "a-1", Labels: []string{"linux"}, MaxConcurrency: 1})
	home.Push(t, "app", "main", home.Commit(t, "app", servertest.Lock("build")))
	d, ok := p.Next().(wire.JobDispatch)
	if !ok {
		t.Fatal("no dispatch")
	}
	say := func(id, line string) {
		p.Send(wire.LogChunk{MessageID: id, RunID: d.RunID, JobID: d.JobID, Lines: []string{line}, Timestamp: 1})
		p.Settle()
	}
	p.Send(wire.JobStatus{MessageID: "r", RunID: d.RunID, JobID: d.JobID, State: ci.JobRunning, Timestamp: 1})
	p.Send(wire.StepStatus{MessageID: "s", RunID: d.RunID, JobID: d.JobID, StepName: "s", State: ci.StepRunning, Timestamp: 1})
	say("c1", "in time")
	verbs := [][]string{{"watch", "latest"}, {"watch", "latest", "--json"}, {"logs", "latest", "--follow"}, {"logs", "latest", "--follow", "--json"}}
	outs, ended := make([]screenBuffer, len(verbs)), make(chan int, len(verbs))
	for i, verb := range verbs {
		go func() {
			ended <- cli.Run(t.Context(), append([]string{"kici", "admin", "runs"}, verb...),
				cli.Process{Stdin: strings.NewReader(""), Stdout: &outs[i], Stderr: &outs[i], Environ: append(os.Environ(), "KICI_DATA_DIR="+home.Settings.DataDir)})
		}()
	}
	await := func(what string, in ...int) {
		t.Helper()
		for _, i := range in {
			servertest.Await(t, what, func() bool { return strings.Contains(outs[i].String(), what) }, outs[i].String)
		}
	}
	await("in time", 0, 2, 3)
	await(`"observe.snapshot"`, 1)
	p.Send(wire.StepStatus{MessageID: "e", RunID: d.RunID, JobID: d.JobID, StepName: "s", State: ci.StepSuccess, Timestamp: 1})
	await("success", 0, 1)
	say("c2", "too late")
	await("too late", 0, 1, 2, 3)
	say("c3", "at the very end")
	p.Send(wire.JobStatus{MessageID: "f", RunID: d.RunID, JobID: d.JobID, State: ci.JobSuccess, Timestamp: 1})
	for range verbs {
		if code := <-ended; code != 0 {
			t.Errorf("exit code %d", code)
		}
	}
	for i, verb := range verbs {
		for _, line := range []string{"in time", "too late", "at the very end"} {
			if n := strings.Count(outs[i].String(), line); n != 1 {
				t.Errorf("%v: %q is there %d times:\n%s", verb, line, n, outs[i].String())
			}
		}
	}
}
