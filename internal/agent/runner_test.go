//go:build unix

package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"kici/internal/agent/runner"
)

// TestMain makes the test binary its own step runner: called with __scene it plays a scene instead of running tests,
// with __runner it is the real one.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "__scene" {
		name, arg, _ := strings.Cut(os.Args[2], ":")
		s := &stage{in: bufio.NewScanner(os.Stdin), arg: arg}
		s.in.Buffer(nil, 32<<20)
		scenes[name](s)
		os.Exit(0)
	}
	if len(os.Args) > 1 && os.Args[1] == "__runner" {
		os.Exit(runner.Main(context.Background(), os.Stdin, os.Stdout, os.Stderr))
	}
	if len(os.Args) > 2 && os.Args[1] == "__agent" {
		os.Exit(agentProcess(os.Args[2]))
	}
	os.Exit(m.Run())
}

// agentProcess is an agent as a program, with its exit code.
func agentProcess(scene string) int {
	cfg, err := ConfigFromEnv(os.Environ())
	if err != nil {
		return 1
	}
	cfg.TempDir, cfg.CacheDir = os.Getenv("TMPDIR"), os.Getenv("TMPDIR")+"/cache"
	cfg.RunnerCommand = []string{os.Args[0], "__scene", scene}
	var exit *ExitError
	if err := Run(context.Background(), cfg, slog.New(slog.NewTextHandler(os.Stderr, nil))); errors.As(err, &exit) {
		return exit.Code
	}
	return 0
}

// stage is the runner's side of the conversation with the agent.
type stage struct {
	in      *bufio.Scanner
	arg     string
	request map[string]any
}

func (s *stage) say(m any) {
	enc := json.NewEncoder(os.Stdout)
	enc.SetEscapeHTML(false) // as the runner does
	if err := enc.Encode(m); err != nil {
		panic(err)
	}
}

// hear reads the next message of the agent, nil at the end.
func (s *stage) hear() map[string]any {
	if !s.in.Scan() {
		return nil
	}
	var m map[string]any
	if err := json.Unmarshal(s.in.Bytes(), &m); err != nil {
		panic(err)
	}
	return m
}

// begin says ready and waits for the request.
func (s *stage) begin() {
	s.say(map[string]any{"type": "ready"})
	m := s.hear()
	if m == nil {
		os.Exit(0)
	}
	s.request, _ = m["request"].(map[string]any)
}

func (s *stage) start(step int, name, kind string) {
	s.say(runner.StepStart{Type: runner.TypeStepStart, StepIndex: step, StepName: name, StepType: kind})
}

func (s *stage) log(step int, line string) {
	s.say(runner.LogLine{Type: runner.TypeLogLine, StepIndex: step, Line: line})
}

func (s *stage) end(step int, name, status string) {
	s.say(runner.StepComplete{Type: runner.TypeStepComplete, StepIndex: step, StepName: name, Status: status, DurationMs: 7, SecretsAccessed: []string{}})
}

func (s *stage) complete(status, err string) {
	s.say(runner.JobComplete{Type: runner.TypeJobComplete, Status: status, Error: err,
		StepResults: []runner.StepResult{{Name: "one", Status: status, DurationMs: 7, Error: err}}})
}

// await blocks until somebody writes to the named pipe.
func await(fifo string) {
	if _, err := os.ReadFile(fifo); err != nil {
		panic(err)
	}
}

var scenes = map[string]func(*stage){
	"success": func(s *stage) {
		s.begin()
		s.log(-1, "loading")
		s.start(0, "one", "")
		s.log(0, "hello")
		s.log(0, "")
		s.log(0, "bye")
		s.say(runner.StepComplete{Type: runner.TypeStepComplete, StepIndex: 0, StepName: "one", Status: "success", DurationMs: 7,
			SecretsAccessed: []string{"A"}, Outputs: json.RawMessage(`{"n":1}`), Data: json.RawMessage(`{"extra":true}`)})
		s.say(runner.JobComplete{Type: runner.TypeJobComplete, Status: "success", Outputs: map[string]json.RawMessage{"one": json.RawMessage(`{"n":1}`)},
			StepResults:   []runner.StepResult{{Name: "one", Status: "success", DurationMs: 7}},
			SecretOutputs: map[string]string{"PASSWORD": "hunter22"}, DroppedJobs: []string{"other"}})
	},
	// Waits in the step until the pipe is written to.
	"gated": func(s *stage) {
		s.begin()
		s.start(0, "one", "")
		s.log(0, "before")
		await(s.arg)
		s.log(0, "after")
		s.end(0, "one", "success")
		s.complete("success", "")
	},
	"request": func(s *stage) {
		s.begin()
		raw, _ := json.Marshal(s.request)
		s.log(-1, string(raw))
		for _, kv := range os.Environ() {
			s.log(0, kv)
		}
		dir, _ := os.Getwd()
		s.log(1, dir)
		s.complete("success", "")
	},
	"secrets": func(s *stage) {
		s.begin()
		s.start(0, "one", "")
		s.log(0, "value s3cret-value base64 czNjcmV0LXZhbHVl token kat_agent")
		code := 3
		s.say(runner.StepComplete{Type: runner.TypeStepComplete, StepIndex: 0, StepName: "one", Status: "failed", DurationMs: 1,
			Error: &runner.StepError{Message: "failed with s3cret-value", ExitCode: &code}, DriftSummary: "drift s3cret-value"})
		s.say(runner.JobComplete{Type: runner.TypeJobComplete, Status: "failed", Error: "job s3cret-value",
			StepResults: []runner.StepResult{{Name: "one", Status: "failed", Error: "failed with s3cret-value"}}})
	},
	"crash": func(s *stage) {
		s.begin()
		s.start(0, "one", "")
		s.end(0, "one", "success")
		s.start(1, "two", "")
		fmt.Fprintln(os.Stderr, "boom with s3cret-value\n    at file.ts:1")
		os.Exit(99)
	},
	"vanish":     func(s *stage) { s.begin(); os.Exit(3) },
	"early-exit": func(*stage) { os.Exit(4) },
	// Ends politely when asked to, with a cancel hook.
	"polite": func(s *stage) {
		signal.Ignore(syscall.SIGTERM)
		s.begin()
		s.start(0, "one", "")
		for m := s.hear(); m["type"] != "abort"; m = s.hear() {
		}
		s.end(0, "one", "cancelled")
		s.start(3, "onCancel", "hook:onCancel")
		s.log(3, "cleaning up")
		s.end(3, "onCancel", "success")
		s.complete("failed", "")
	},
	// Neither heeds aborts nor signals, and has a grandchild in a session of its own.
	"stubborn": func(s *stage) {
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
		s.begin()
		cmd := exec.Command("setsid", "bash", "-c", "trap '' TERM HUP; exec 3>"+s.arg+"; echo up >&3; sleep 1000")
		if err := cmd.Start(); err != nil {
			panic(err)
		}
		s.start(0, "one", "")
		for range signals {
		}
	},
	"flood": func(s *stage) {
		s.begin()
		s.start(0, "one", "")
		for i := range 40_000 {
			s.log(0, fmt.Sprintf("%06d %s", i, strings.Repeat("x", 500)))
		}
		s.end(0, "one", "success")
		s.complete("success", "")
	},
	"long-lines": func(s *stage) {
		s.begin()
		s.start(0, "one", "")
		s.log(0, strings.Repeat("é", 50_000))
		s.end(0, "one", "success")
		s.complete("success", "")
	},
	"ask": func(s *stage) {
		s.begin()
		s.start(0, "one", "")
		ask := func(r runner.Request) {
			s.say(r)
			raw, _ := json.Marshal(s.hear())
			s.log(0, string(raw))
		}
		ask(runner.Request{Type: runner.TypeEventEmit, RequestID: "1", EventName: "done", Payload: json.RawMessage(`{"a":1}`)})
		ask(runner.Request{Type: runner.TypeAPIRequest, RequestID: "2", Method: "inventory.get", Params: json.RawMessage(`{"agentId":"x"}`)})
		ask(runner.Request{Type: runner.TypeCacheRequest, RequestID: "3", Op: "restore", Key: "k"})
		ask(runner.Request{Type: runner.TypeCacheRequest, RequestID: "4", Op: "completeSave", Key: "k", TarHash: "h", SizeBytes: 1})
		ask(runner.Request{Type: runner.TypeApprovalRequest, RequestID: "5", StepName: "one", Reason: "always", Clauses: json.RawMessage(`[{"team":"ops"}]`)})
		ask(runner.Request{Type: runner.TypeAPIRequest, RequestID: "6", Method: "kici.preBootSend"})
		s.end(0, "one", "success")
		s.complete("success", "")
	},
	// Asks for a reboot of the machine, and takes it back.
	"reboot": func(s *stage) {
		s.begin()
		s.start(0, "one", "")
		for _, method := range strings.Fields(s.arg) {
			s.say(runner.Request{Type: runner.TypeAPIRequest, RequestID: "1", Method: method, Params: json.RawMessage(`{"deadlineMs":60000}`)})
			raw, _ := json.Marshal(s.hear())
			s.log(0, string(raw))
		}
		s.end(0, "one", "success")
		s.complete("success", "")
	},
	// Asks for a reboot, and ends without waiting for the answer.
	"reboot-unheard": func(s *stage) {
		s.begin()
		s.say(runner.Request{Type: runner.TypeAPIRequest, RequestID: "1", Method: "host.requestReboot"})
		s.complete("success", "")
	},
	// As much as the runner lets a job give: outputs of 2 MiB and 20 secret outputs of 64 KiB, and an error in each step.
	"large": func(s *stage) {
		s.begin()
		outputs, secrets := map[string]json.RawMessage{}, map[string]string{}
		size, _ := strconv.Atoi(s.arg)
		outputs["one"] = json.RawMessage(`{"v":"` + strings.Repeat("<", size-8) + `"}`)
		for i := range 20 {
			secrets[fmt.Sprint("secret", i)] = strings.Repeat("x", 64<<10)
		}
		var steps []runner.StepResult
		for i := range 20 {
			steps = append(steps, runner.StepResult{Name: fmt.Sprint("step", i), Status: "failed", Error: strings.Repeat("<", 64<<10)})
		}
		s.say(runner.JobComplete{Type: runner.TypeJobComplete, Status: "success", StepResults: steps, Outputs: outputs, SecretOutputs: secrets})
	},
	"keep": func(s *stage) {
		s.begin()
		s.start(0, "one", "")
		ask := func(r runner.Request) {
			r.Type = runner.TypeArtifact
			s.say(r)
			raw, _ := json.Marshal(s.hear())
			s.log(0, string(raw))
		}
		ask(runner.Request{RequestID: "1", Op: "begin", Name: "a", SizeBytes: 7})
		ask(runner.Request{RequestID: "2", Op: "begin", Name: "b", SizeBytes: -1})
		ask(runner.Request{RequestID: "3", Op: "commit", UploadID: "u", SHA256: "07", SizeBytes: 7})
		s.end(0, "one", "success")
		s.complete("success", "")
	},
	"attest": func(s *stage) {
		s.begin()
		s.start(0, "one", "")
		ask := func(r runner.Request) {
			s.say(r)
			raw, _ := json.Marshal(s.hear())
			s.log(0, string(raw))
		}
		ask(runner.Request{Type: runner.TypeAPIRequest, RequestID: "1", Method: "oidc.token.request", Params: json.RawMessage(`{"jobId":"job-1","audience":"a"}`)})
		ask(runner.Request{Type: runner.TypeProvenance, RequestID: "2", Op: "requestUploadUrl", SubjectDigest: "07"})
		ask(runner.Request{Type: runner.TypeProvenance, RequestID: "3", Op: "complete", SubjectDigest: "07", SubjectName: "app", MediaType: "m"})
		s.end(0, "one", "success")
		s.complete("success", "")
	},
	"concurrency": func(s *stage) {
		s.begin()
		s.say(runner.ConcurrencyReport{Type: runner.TypeConcurrency, Group: "deploy"})
		for {
			m := s.hear()
			s.log(-1, fmt.Sprint(m["action"], " ", m["reason"]))
			if m["action"] != "wait" {
				break
			}
		}
		s.complete("success", "")
	},
	"source": func(s *stage) {
		s.begin()
		content, err := os.ReadFile("a.txt")
		s.log(0, fmt.Sprint(string(content), err))
		s.complete("success", "")
	},
}
