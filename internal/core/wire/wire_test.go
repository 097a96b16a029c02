package wire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"kici/internal/core/ci"
	"kici/internal/vectors"
)

func TestVectorsAgentMessages(t *testing.T) {
	type vector struct {
		Name      string          `json:"name"`
		Direction string          `json:"direction"`
		Valid     bool            `json:"valid"`
		Message   json.RawMessage `json:"message"`
	}
	for _, v := range vectors.LoadAs[vector](t, "agent-messages.json") {
		t.Run(v.Name, func(t *testing.T) {
			decode := DecodeFromAgent
			if v.Direction == "orchestrator->agent" {
				decode = DecodeFromServer
			}
			m, err := decode(v.Message)
			if v.Valid != (err == nil) {
				t.Fatalf("valid = %v, want %v (%v)", err == nil, v.Valid, err)
			}
			if v.Valid {
				requireRoundTrip(t, m, decode)
			}
		})
	}
}

// requireRoundTrip checks that a message that was written can be read, and is then written the same again.
func requireRoundTrip(t *testing.T, m Message, decode func([]byte) (Message, error)) {
	t.Helper()
	first, err := Encode(m)
	if err != nil {
		t.Fatal(err)
	}
	again, err := decode(first)
	if err != nil {
		t.Fatalf("decode %s: %v", first, err)
	}
	second, err := Encode(again)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(first), string(second)); diff != "" {
		t.Error(diff)
	}
}

func TestRecordedFramesAreValid(t *testing.T) {
	files, err := filepath.Glob(vectors.Samples("wire", "*.jsonl"))
	if err != nil || len(files) == 0 {
		t.Skip("no recorded traffic")
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(bytes.NewReader(raw))
		lines.Buffer(nil, MaxFrame)
		for lines.Scan() {
			var frame struct {
				Dir string          `json:"dir"`
				Msg json.RawMessage `json:"msg"`
			}
			if err := json.Unmarshal(lines.Bytes(), &frame); err != nil {
				t.Fatal(err)
			}
			decode := DecodeFromAgent
			switch frame.Dir {
			case "ctl":
				continue
			case "o2a":
				decode = DecodeFromServer
			}
			m, err := decode(frame.Msg)
			if err != nil {
				t.Errorf("%s: %v: %.200s", filepath.Base(file), err, frame.Msg)
				continue
			}
			requireRoundTrip(t, m, decode)
		}
	}
}

func TestErrorsTellKindsApart(t *testing.T) {
	deep := `{"type":"job.status","data":` + strings.Repeat(`{"a":`, 600) + `1` + strings.Repeat(`}`, 601)
	tests := []struct {
		name, raw   string
		kind        error // ErrMalformed, ErrUnknownType or nil for an InvalidError
		typ, field  string
		inTheReport string
	}{
		{name: "empty", raw: ``, kind: ErrMalformed},
		{name: "not JSON", raw: `hello`, kind: ErrMalformed},
		{name: "array", raw: `["heartbeat"]`, kind: ErrMalformed},
		{name: "null", raw: `null`, kind: ErrMalformed},
		{name: "cut off", raw: `{"type":"heartbeat","timestamp":1`, kind: ErrMalformed},
		{name: "text behind it", raw: `{"type":"heartbeat","timestamp":1} x`, kind: ErrMalformed},
		{name: "trailing comma", raw: `{"type":"heartbeat","timestamp":1,}`, kind: ErrMalformed},
		{name: "leading zero", raw: `{"type":"heartbeat","timestamp":01}`, kind: ErrMalformed},
		{name: "bare minus", raw: `{"type":"heartbeat","timestamp":-}`, kind: ErrMalformed},
		{name: "control character in a string", raw: "{\"type\":\"heartbeat\",\"x\":\"a\nb\",\"timestamp\":1}", kind: ErrMalformed},
		{name: "bad escape", raw: `{"type":"heartbeat","x":"\x","timestamp":1}`, kind: ErrMalformed},
		{name: "nested too deeply", raw: deep, kind: ErrMalformed},
		{name: "unknown type", raw: `{"a":{"type":"heartbeat"},"type":"job.finish"}`, kind: ErrUnknownType, typ: "job.finish"},
		{name: "unknown type in bad JSON", raw: `{"type":"job.finish",`, kind: ErrMalformed},
		{name: "no type", raw: `{"timestamp":1}`, field: "type", inTheReport: "is required"},
		{name: "type is a number", raw: `{"type":7}`, field: "type", inTheReport: "expected a string"},
		{name: "missing member", raw: `{"type":"heartbeat"}`, typ: "heartbeat", field: "timestamp", inTheReport: "is required"},
		{name: "infinite", raw: `{"type":"heartbeat","timestamp":1e999}`, typ: "heartbeat", field: "timestamp", inTheReport: "out of range"},
		{
			name: "nested member", raw: `{"type":"agent.register","messageId":"m","agentId":"a","labels":[],"inFlightJobs":[{"jobId":"j","runId":null}]}`,
			typ: "agent.register", field: "inFlightJobs.runId", inTheReport: "expected a string",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := DecodeFromAgent([]byte(tt.raw))
			if tt.kind != nil {
				if !errors.Is(err, tt.kind) {
					t.Fatalf("error = %v, want %v", err, tt.kind)
				}
				if unknown, ok := errors.AsType[*UnknownTypeError](err); ok && unknown.Type != tt.typ {
					t.Errorf("type = %q, want %q", unknown.Type, tt.typ)
				}
				return
			}
			bad, ok := errors.AsType[*InvalidError](err)
			if !ok {
				t.Fatalf("error = %v, want an InvalidError", err)
			}
			if bad.Type != tt.typ || bad.Field != tt.field || !strings.Contains(bad.Problem, tt.inTheReport) {
				t.Errorf("got %+v", bad)
			}
		})
	}
}

func TestTextsOfAgentsAreCleaned(t *testing.T) {
	raw := []byte(`{"type":"job.status","messageId":"m\u0000","runId":"` + "\xff" + `","jobId":"\ud83d\ude00\ud83d!","state":"failed","timestamp":1.9,"data":{"error":"a\u0000b\\u0000","n":"\\\u0000"}}`)
	want := JobStatus{
		MessageID: "m\uFFFD", RunID: "\uFFFD", JobID: "😀\uFFFD!", State: "failed", Timestamp: 1,
		Data: json.RawMessage(`{"error":"a\ufffdb\\u0000","n":"\\\ufffd"}`),
	}
	got, err := DecodeFromAgent(raw)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Message(want), got); diff != "" {
		t.Error(diff)
	}
}

func TestSecretsFromTheServerKeepEveryByte(t *testing.T) {
	raw := []byte(`{"type":"job.dispatch","messageId":"m","runId":"r","jobId":"j","repoUrl":"","ref":"","sha":"","lockFileUrl":"","jobConfig":{"a":"\u0000"},"timestamp":1,"secrets":{"K":"a\u0000b"}}`)
	m, err := DecodeFromServer(raw)
	if err != nil {
		t.Fatal(err)
	}
	d := m.(JobDispatch)
	if d.Secrets["K"] != "a\x00b" || string(d.JobConfig) != `{"a":"\u0000"}` {
		t.Errorf("got %q, %s", d.Secrets["K"], d.JobConfig)
	}
}

func TestErrorsNeverRepeatValues(t *testing.T) {
	raw := []byte(`{"type":"auth.request","token":"kat_secret","protocolVersion":"kat_secret"}`)
	if _, err := DecodeFromAgent(raw); err == nil || strings.Contains(err.Error(), "kat_secret") {
		t.Errorf("error = %v", err)
	}
}

func TestEncodeLeavesOutWhatIsAbsent(t *testing.T) {
	tests := []struct {
		name string
		m    Message
		want string
	}{
		{"nil lists are empty ones", LogChunk{MessageID: "m"}, `{"type":"log.chunk","messageId":"m","runId":"","jobId":"","stepIndex":0,"lines":[],"timestamp":0}`},
		{"nil objects are empty ones", EventEmit{RequestID: "e"}, `{"type":"event.emit","jobId":"","requestId":"e","eventName":"","payload":{}}`},
		{"nested lists too", JobContext{}, `{"type":"job.context","runId":"","jobId":"","context":{"runtime":{"nodeVersion":"","os":"","arch":""},"sandboxType":"","workingDirectory":"","gitRef":"","envVars":[]}}`},
		{"markup stays as it is", ErrorFrame{Code: "<&>"}, `{"type":"error","code":"<&>","message":""}`},
		{"false is told", UserCacheRestoreResponse{RequestID: "u"}, `{"type":"cache.user.restore.response","requestId":"u","hit":false}`},
		{"a null result is a result", APIResponse{RequestID: "a", Result: json.RawMessage("null")}, `{"type":"agent.api.response","requestId":"a","result":null}`},
	}
	for _, tt := range tests {
		raw, err := Encode(tt.m)
		if err != nil {
			t.Fatal(err)
		}
		if string(raw) != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, raw, tt.want)
		}
	}
}

func TestEncodeChangesNothingOfItsArgument(t *testing.T) {
	m := JobContext{RunID: "r"}
	if _, err := Encode(m); err != nil {
		t.Fatal(err)
	}
	if m.Context.EnvVars != nil {
		t.Error("Encode filled the caller's message")
	}
}

func TestCloseReasonCutsBetweenCharacters(t *testing.T) {
	tests := []struct{ in, want string }{
		{"short", "short"},
		{strings.Repeat("a", 123), strings.Repeat("a", 123)},
		{strings.Repeat("a", 124), strings.Repeat("a", 123)},
		{strings.Repeat("a", 122) + "é", strings.Repeat("a", 122)},
		{strings.Repeat("😀", 40), strings.Repeat("😀", 30)},
	}
	for _, tt := range tests {
		if got := CloseReason(tt.in); got != tt.want {
			t.Errorf("%q: got %q", tt.in, got)
		}
	}
}

func TestDataIsReadLeniently(t *testing.T) {
	code := int64(2)
	if diff := cmp.Diff(StepData{DurationMs: 10, Error: "exit code: 2", ExitCode: &code, StepType: "hook:cleanup"},
		ParseStepData(json.RawMessage(`{"durationMs":10.7,"error":{"message":"exit code: 2","exitCode":2},"step_type":"hook:cleanup","bytes":"many"}`))); diff != "" {
		t.Error(diff)
	}
	if got := ParseStepData(json.RawMessage(`{"error":"plain"}`)); got.Error != "plain" || got.ExitCode != nil {
		t.Errorf("got %+v", got)
	}
	job := ParseJobData(json.RawMessage(`{"durationMs":5,"error":7,"outputs":[1],"stepResults":[{"name":"a","status":"success","durationMs":1.5}],"initComplete":true,"initResult":{"env":{}}}`))
	want := JobData{
		DurationMs: 5, StepResults: []StepResult{{Name: "a", Status: "success", DurationMs: 1.5}},
		InitComplete: true, InitResult: json.RawMessage(`{"env":{}}`),
	}
	if diff := cmp.Diff(want, job); diff != "" {
		t.Error(diff)
	}
	for _, nothing := range []string{"", "null", "[]", `{"error":`, `{"stepResults":[{"name":5}],"outputs":null,"error":null,"durationMs":"5","initFailure":[]}`} {
		if diff := cmp.Diff(JobData{}, ParseJobData(json.RawMessage(nothing))); diff != "" {
			t.Error(nothing, diff)
		}
	}
	job = ParseJobData(json.RawMessage(` { "error" : "\u00e9" , "stepResults":[{"name":null,"error":{"is":["kept"]}, "more":1}] , "initFailure":{"message":"m"},"error":"the last counts"}`))
	want = JobData{
		Error: "the last counts", StepResults: []StepResult{{Error: json.RawMessage(`{"is":["kept"]}`)}}, InitFailure: &ci.InitFailure{Message: "m"},
	}
	if diff := cmp.Diff(want, job); diff != "" {
		t.Error(diff)
	}
}

// TestStringsAreReadAsJSONSays compares the scanner with the standard library on strings and numbers of every shape.
func TestStringsAreReadAsJSONSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOf(rapid.String()).Draw(t, "lines")
		raw, err := Encode(LogChunk{MessageID: "m", Lines: lines, Timestamp: rapid.Int64Range(-maxSafe, maxSafe).Draw(t, "at")})
		if err != nil {
			t.Fatal(err)
		}
		var want LogChunk
		if err := json.Unmarshal(raw, &want); err != nil {
			t.Fatal(err)
		}
		got, err := DecodeFromServer(append([]byte(`{"type":"error","code":"","message":"","extra":`), append(raw, '}')...))
		if err != nil || got.MessageType() != "error" {
			t.Fatalf("skip: %v", err)
		}
		m, err := decode(raw, fromAgent, false)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, m); diff != "" {
			t.Fatal(diff)
		}
	})
}

// TestEveryMessageCanBeRead makes the plans of all messages: one with a member of a kind that no reader knows would stop the
// process that meets it first.
func TestEveryMessageCanBeRead(t *testing.T) {
	for _, types := range []map[string]reflect.Type{fromAgent, fromServer} {
		for name, typ := range types {
			if p := planOf(typ); len(p.fields) != typ.NumField() {
				t.Errorf("%s: %d of %d members can be read", name, len(p.fields), typ.NumField())
			}
		}
	}
}

func FuzzDecode(f *testing.F) {
	raw, err := os.ReadFile(filepath.Join(vectors.Samples(), "..", "vectors", "agent-messages.json"))
	if err == nil {
		var cases []struct{ Message json.RawMessage }
		if err := json.Unmarshal(raw, &cases); err != nil {
			f.Fatal(err)
		}
		for _, c := range cases {
			f.Add([]byte(c.Message))
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, decode := range []func([]byte) (Message, error){DecodeFromAgent, DecodeFromServer} {
			m, err := decode(raw)
			if err != nil {
				continue
			}
			if !json.Valid(bytes.ToValidUTF8(raw, []byte("\uFFFD"))) {
				t.Fatalf("accepted what is not JSON: %q", raw)
			}
			requireRoundTrip(t, m, decode)
		}
	})
}

func BenchmarkDecodeLogChunk(b *testing.B) {
	lines := make([]string, 50)
	for i := range lines {
		lines[i] = "[compile] building package number something of the project"
	}
	raw, err := Encode(LogChunk{MessageID: "399e6023-7f3a-46f7-ad0e-02ba1ee9079f", RunID: "41f10659", JobID: "e0d662bd", Lines: lines, Timestamp: 1795987360681})
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeFromAgent(raw); err != nil {
			b.Fatal(err)
		}
	}
}
