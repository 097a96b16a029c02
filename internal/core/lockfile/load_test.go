package lockfile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/kit/jsontree"
	"kici/internal/vectors"
)

func TestVectorsLockfileValidate(t *testing.T) {
	for _, c := range vectors.Load(t, "lockfile-validate.json") {
		t.Run(c.Name, func(t *testing.T) {
			var in struct{ Raw, Repo, Ref string }
			var want struct {
				OK   bool
				Kind string
			}
			decode(t, c.Input, &in)
			decode(t, c.Expected, &want)
			f, perr := Load([]byte(in.Raw), in.Repo, in.Ref)
			if (perr == nil) != want.OK || (f == nil) == want.OK {
				t.Fatalf("Load = %v, %v; want ok %v", f, perr, want.OK)
			}
			if perr != nil && (perr.Kind != want.Kind || perr.Repo != in.Repo || perr.Ref != in.Ref) {
				t.Errorf("error %s (%s of %s at %s), want kind %s", perr, perr.Kind, perr.Repo, perr.Ref, want.Kind)
			}
		})
	}
}

func decode(t *testing.T, raw json.RawMessage, v any) {
	t.Helper()
	if err := json.Unmarshal(raw, v); err != nil {
		t.Fatalf("decode vector: %v", err)
	}
}

// Documents that the reference compiler wrote come back byte for byte, so no member and no order is lost on the way.
func TestSampleDocumentsRoundTrip(t *testing.T) {
	paths, err := filepath.Glob(vectors.Samples("locks", "*.json"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no samples: %v", err)
	}
	for _, p := range paths {
		t.Run(filepath.Base(p), func(t *testing.T) {
			raw, err := os.ReadFile(p)
			if err != nil {
				t.Fatal(err)
			}
			f, perr := Load(raw, "acme/app", "main")
			if perr != nil {
				t.Fatal(perr)
			}
			for _, w := range f.Workflows {
				if len(w.Problems) > 0 {
					t.Errorf("workflow %s has problems: %q", w.Name, w.Problems)
				}
			}
			out, err := Marshal(f)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(raw), string(out)); diff != "" {
				t.Error(diff)
			}
			if hash, err := FileHash(raw); err != nil || hash != f.ContentHash {
				t.Errorf("FileHash = %s, %v; the document says %s", hash, err, f.ContentHash)
			}
		})
	}
}

func TestMalformedJSONNamesThePlace(t *testing.T) {
	tests := []struct {
		name, raw    string
		line, column int
		message      string
	}{
		{"missing comma", "{\n  \"a\": 1\n  \"b\": 2\n}", 3, 3, `expected ',' or '}', found '"'`},
		{"column counts characters", "{\"é😀\": x}", 1, 8, "expected a value, found 'x'"},
		{"unfinished", "{\"a\": [1, 2", 1, 12, "expected ',' or ']', found the end of the text"},
		{"trailing comma", "[1,]", 1, 4, "expected a value, found ']'"},
		{"unquoted name", "{a: 1}", 1, 2, "expected a quoted name, found 'a'"},
		{"newline in a text", "{\"a\": \"x\n\"}", 1, 9, `control character '\n' in a text`},
		{"bad escape", `{"a": "\q"}`, 1, 9, "expected an escape, found 'q'"},
		{"bad unicode escape", "\"\\u00\x107\"", 1, 6, `expected a hexadecimal digit, found '\x10'`},
		{"leading zero", `{"a": 01}`, 1, 8, "expected ',' or '}', found '1'"},
		{"number without digits", `{"a": -}`, 1, 8, "expected a digit, found '}'"},
		{"fraction without digits", `[1.]`, 1, 4, "expected a digit, found ']'"},
		{"exponent without digits", `[1e+]`, 1, 5, "expected a digit, found ']'"},
		{"missing colon", `{"a" 1}`, 1, 6, "expected ':', found '1'"},
		{"unfinished text", `"abc`, 1, 5, "expected a closing quote, found the end of the text"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, perr := Load([]byte(tt.raw), "acme/app", "main")
			if perr == nil || perr.Kind != InvalidJSON {
				t.Fatalf("error %v, want %s", perr, InvalidJSON)
			}
			want := fmt.Sprintf("Lock file at acme/app ref=main is not valid JSON: line %d, column %d: %s",
				tt.line, tt.column, tt.message)
			if perr.Message != want || perr.Line != tt.line || perr.Column != tt.column {
				t.Errorf("got  %s\nwant %s", perr.Message, want)
			}
		})
	}
}

func TestLimits(t *testing.T) {
	tests := []struct{ name, raw, kind, message string }{
		{"no content", "", InvalidJSON, "Lock file at acme/app ref=main has no content"},
		{"too large", strings.Repeat(" ", MaxBytes+1), TooLarge, "more than the limit of 5242880"},
		{"too deep", strings.Repeat("[", jsontree.MaxDepth+1), TooDeep, "nested more than 128 levels deep"},
		{"far too deep", strings.Repeat(`{"a":`, 1<<20), TooDeep, "nested more than 128 levels deep"},
		{
			"other version", `{"schemaVersion":28}`, SchemaMismatch,
			"Lock file schemaVersion 28 is incompatible with this orchestrator (engine SCHEMA_VERSION 29). " +
				"Recompile the lock with `kici compile` and push again.",
		},
		{"no version", `{}`, BadSchemaVersion, "Invalid lock file at acme/app ref=main: missing or invalid schemaVersion"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, perr := Load([]byte(tt.raw), "acme/app", "main")
			if perr == nil || perr.Kind != tt.kind || !strings.Contains(perr.Message, tt.message) {
				t.Errorf("error %v (%+v), want %s: %s", perr, perr, tt.kind, tt.message)
			}
		})
	}
	deep := `{"schemaVersion":29,"x":` + strings.Repeat("[", 120) + strings.Repeat("]", 120) + "}"
	if _, perr := Load([]byte(deep), "acme/app", "main"); perr != nil {
		t.Errorf("a document 121 levels deep: %v", perr)
	}
}

// job is a document with one workflow `wf` and one static job `job` that has the given further members.
func job(members string) string {
	return `{"schemaVersion":29,"workflows":[{"name":"wf","triggers":[],"jobs":[` +
		`{"_type":"static","name":"job","needs":[],"steps":[],` + members + `}]}]}`
}

func loadJob(t *testing.T, members string) (Job, []string) {
	t.Helper()
	f, perr := Load([]byte(job(members)), "acme/app", "main")
	if perr != nil {
		t.Fatal(perr)
	}
	return f.Workflows[0].Jobs[0], f.Workflows[0].Problems
}

func TestCheckFindingsNameTheJob(t *testing.T) {
	tests := []struct{ name, members, kind, message string }{
		{
			"matcher", `"runsOn":[{"kind":"exact"}]`, InvalidMatcher,
			"lock workflow 'wf' job 'job' runsOn: invalid label matcher {\"kind\":\"exact\"} — expected ",
		},
		{
			"invalid expression", `"runsOn":[{"kind":"regex","source":"(","flags":""}]`, InvalidRegex,
			"lock workflow 'wf' job 'job' runsOn: invalid regex /(/: ",
		},
		{
			"dangerous expression", `"excludeLabels":[{"kind":"regex","source":"(a+)+","flags":"i"}]`, ReDoS,
			"lock workflow 'wf' job 'job' excludeLabels: regex /(a+)+/i is ReDoS-prone — rejected",
		},
		{"no list", `"runsOn":{"kind":"exact","value":"x"}`, Malformed, "lock workflow 'wf' job 'job' runsOn: expected a list, found an object"},
		{"null group", `"runsOnAll":{"include":[null]}`, Malformed, "runsOnAll.include: expected a list, found null"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, perr := Load([]byte(job(tt.members)), "acme/app", "main")
			if perr == nil || perr.Kind != tt.kind || !strings.HasPrefix(perr.Message, tt.message) && !strings.HasSuffix(perr.Message, tt.message) {
				t.Errorf("error %v, want %s: %s", perr, tt.kind, tt.message)
			}
		})
	}
}

func TestFalsyMatcherListsCountAsAbsent(t *testing.T) {
	for _, v := range []string{`null`, `""`, `0`, `false`} {
		j, problems := loadJob(t, `"runsOn":`+v+`,"excludeLabels":`+v+`,"runsOnAll":`+v)
		if j.RunsOn != nil || j.ExcludeLabels != nil || j.RunsOnAll != nil || len(problems) > 0 {
			t.Errorf("%s: job %+v, problems %q", v, j, problems)
		}
	}
}

func TestASecondWorkflowsBadMatcherRejectsTheFile(t *testing.T) {
	raw := `{"schemaVersion":29,"workflows":[{"name":"a","jobs":[]},` +
		`{"name":"b","jobs":[{"_type":"static","name":"j","runsOn":["linux"]}]}]}`
	if _, perr := Load([]byte(raw), "acme/app", "main"); perr == nil || !strings.Contains(perr.Message, "lock workflow 'b' job 'j' runsOn") {
		t.Errorf("error %v", perr)
	}
}

func TestContextsIsAnotherSpellingOfEnvironments(t *testing.T) {
	want := []ContextRef{{Value: Text{Value: "new"}}}
	for _, members := range []string{
		`"contexts":[{"value":"new","dynamic":false}]`,
		`"contexts":[{"value":"new","dynamic":false}],"environments":[{"value":"old","dynamic":false}]`,
		`"environments":[{"value":"old","dynamic":false}],"contexts":[{"value":"new","dynamic":false}]`,
		`"environments":[{"value":"new","dynamic":false}],"contexts":null`,
	} {
		j, _ := loadJob(t, members)
		if diff := cmp.Diff(want, j.Environments); diff != "" {
			t.Errorf("%s: %s", members, diff)
		}
	}
}

func TestKeyOrderSurvives(t *testing.T) {
	j, _ := loadJob(t, `"matrix":{"_type":"static","values":{"z":["1"],"10":["x"],"a":["2"],"9":["y"]}},`+
		`"include":[{"os":"w","n":"9"},{"n":"8","os":"x"}],"env":{"B":"1","A":"2","B":"3"}`)
	if diff := cmp.Diff([]Dimension{{"9", []string{"y"}}, {"10", []string{"x"}}, {"z", []string{"1"}}, {"a", []string{"2"}}}, j.Matrix.Dimensions); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]Pairs{{{"os", "w"}, {"n", "9"}}, {{"n", "8"}, {"os", "x"}}}, j.Include); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(Pairs{{"B", "3"}, {"A", "2"}}, j.Env.Values); diff != "" {
		t.Errorf("of a repeated key the first place and the last value count: %s", diff)
	}
}

// A member of the wrong type neither rejects the document nor passes silently.
func TestWrongTypesAreNoted(t *testing.T) {
	tests := []struct{ members, problem string }{
		{`"timeout":"5m"`, "job 'job' timeout: expected a number, found text"},
		{`"approval":"ops"`, "job 'job' approval: expected an object, found text"},
		{`"approval":{"clauses":[{"team":"a","user":"b"}],"when":"always"}`, "job 'job' approval.clauses: expected exactly one of team and user, found an object"},
		{`"needs":"build"`, "job 'job' needs: expected a list, found text"},
		{`"needs":[{"runOn":["success"]}]`, "job 'job' needs: expected the name of a job or group, found an object"},
		{`"matrix":{"_type":"static","values":{"os":"linux"}}`, "job 'job' matrix.values.os: expected a list, found text"},
		{`"environments":[{"value":7,"dynamic":false}]`, "job 'job' environments.value: expected text, found a number"},
		{`"runsOnAll":"linux"`, "job 'job' runsOnAll: expected an object, found text"},
	}
	for _, tt := range tests {
		if _, problems := loadJob(t, tt.members); len(problems) == 0 || problems[0] != tt.problem {
			t.Errorf("%s: problems %q, want %q", tt.members, problems, tt.problem)
		}
	}
	j, problems := loadJob(t, `"timeout":null,"env":{"N":1,"T":true},"matrix":{"_type":"static","values":[18,"20"]}`)
	if len(problems) > 0 || j.TimeoutMs != 0 {
		t.Errorf("null and plain values: %q", problems)
	}
	if diff := cmp.Diff(Pairs{{"N", "1"}, {"T", "true"}}, j.Env.Values); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"18", "20"}, j.Matrix.List); diff != "" {
		t.Error(diff)
	}
}

func TestNullTriggersAndForeignJobsKeepTheirPlace(t *testing.T) {
	f, perr := Load([]byte(`{"schemaVersion":29,"source":{"file":"f","export":"#default"},"workflows":[{"name":"w",`+
		`"triggers":[null,{"_type":"push","branches":[],"paths":[]}],"jobs":[{"_type":"alien"},{"_type":"dynamic",`+
		`"source":{"file":"f","index":1},"group":"g","needs":["a"],"resultAware":true}]}]}`), "acme/app", "main")
	if perr != nil {
		t.Fatal(perr)
	}
	w := f.Workflow("w")
	if w == nil || f.Workflow("x") != nil || w.Source.File != "f" || len(w.Problems) > 0 {
		t.Fatalf("workflow %+v", w)
	}
	if len(w.Triggers) != 2 || w.Triggers[0].Type != "" || w.Triggers[1].Type != "push" {
		t.Errorf("triggers %+v", w.Triggers)
	}
	if w.Jobs[0].Kind() != KindUnknown || w.Jobs[1].Kind() != KindDynamic || *w.Jobs[1].Generator != (GeneratorSource{"f", 1}) {
		t.Errorf("jobs %+v", w.Jobs)
	}
	if out, err := json.Marshal(w.Triggers); err != nil || string(out) != `[null,{"_type":"push","branches":[],"paths":[]}]` {
		t.Errorf("triggers write as %s, %v", out, err)
	}
}

func TestDecodeJobChecksLikeLoad(t *testing.T) {
	j, err := DecodeJob([]byte(`{"_type":"static","name":"j","runsOn":[{"kind":"exact","value":"a"}],"needs":[],"steps":[]}`), "wf")
	if err != nil || j.Name != "j" || len(j.RunsOn) != 1 {
		t.Errorf("job %+v, %v", j, err)
	}
	for _, bad := range []string{`{`, `{"_type":"static","name":"j","runsOn":["a"]}`, `{"_type":"static","name":"j","timeout":"x"}`, `5`} {
		if j, err := DecodeJob([]byte(bad), "wf"); err == nil {
			t.Errorf("%s: decoded as %+v", bad, j)
		}
	}
}

func TestTextsThatDatabasesRefuseAreReplaced(t *testing.T) {
	j, problems := loadJob(t, `"description":"a\u0000b\ud800c","env":{"\u0000k":"v"}`)
	if j.Description != "a\uFFFDb\uFFFDc" || j.Env.Values[0].Key != "\uFFFDk" || len(problems) > 0 {
		t.Errorf("job %+v, problems %q", j, problems)
	}
}

func TestVectorsFlattenSteps(t *testing.T) {
	for _, c := range vectors.LoadFunction(t, "run-aggregation.json", "flattenSteps") {
		var in struct{ Steps json.RawMessage }
		decode(t, c.Input, &in)
		t.Run(c.ID, func(t *testing.T) { flattenVector(t, in.Steps, c.Expected) })
	}
}

// The names that a dependant is told outputs of are those of the entries that name a job and nothing else.
func TestVectorsUpstreamBaseNames(t *testing.T) {
	for _, c := range vectors.LoadFunction(t, "run-aggregation.json", "upstreamBaseNames") {
		var in struct{ Needs json.RawMessage }
		var want []string
		decode(t, c.Input, &in)
		decode(t, c.Expected, &want)
		j, _ := loadJob(t, `"needs":`+string(in.Needs))
		got := []string{}
		for _, n := range j.Needs {
			if n.Name != "" && n.Group == "" {
				got = append(got, n.Name)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", c.ID, diff)
		}
	}
}

// bigDocument is a document of about the given size with ordinary content.
func bigDocument(size int) []byte {
	var b bytes.Buffer
	b.WriteString("{\n  \"schemaVersion\": 29,\n  \"workflows\": [")
	for i := 0; b.Len() < size-8192; i++ {
		if i > 0 {
			b.WriteString(",")
		}
		fmt.Fprintf(&b, "\n    {\n      \"name\": \"w%d\", \"contentHash\": \"%064d\", \"compileSchemaVersion\": 5,\n      \"triggers\": [{\"_type\": \"push\", \"branches\": [{\"type\": \"glob\", \"pattern\": \"main\"}], \"paths\": [\"src/**\"]}],\n      \"jobs\": [", i, i)
		for j := range 10 {
			if j > 0 {
				b.WriteString(",")
			}
			fmt.Fprintf(&b, "\n        {\n          \"_type\": \"static\", \"name\": \"job-%d\",\n          \"runsOn\": [{\"kind\": \"exact\", \"value\": \"linux\"}, {\"kind\": \"regex\", \"source\": \"^gpu-\", \"flags\": \"i\"}],\n          \"needs\": [],\n          \"steps\": [{\"name\": \"a\", \"hasOutputs\": false, \"sourceLocation\": {\"file\": \".kici/workflows/ci.ts\", \"line\": 12, \"column\": 4}}, {\"name\": \"quo\\\"ted\", \"hasOutputs\": true}]\n        }", j)
		}
		b.WriteString("\n      ]\n    }")
	}
	b.WriteString("\n  ]\n}")
	return b.Bytes()
}

func BenchmarkLoad5MiB(b *testing.B) {
	raw := bigDocument(MaxBytes)
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		if _, perr := Load(raw, "acme/app", "main"); perr != nil {
			b.Fatal(perr)
		}
	}
}

func FuzzLoad(f *testing.F) {
	for _, c := range vectors.Load(f, "lockfile-validate.json") {
		var in struct{ Raw string }
		if err := json.Unmarshal(c.Input, &in); err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(in.Raw))
	}
	paths, err := filepath.Glob(vectors.Samples("locks", "*.json"))
	if err != nil {
		f.Fatal(err)
	}
	for _, p := range paths {
		raw, err := os.ReadFile(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Add([]byte(job(`"runsOn":[{"kind":"regex","source":"a","flags":""}],"matrix":{"_type":"static","values":{"a":["\ud800"]}}`)))
	f.Add([]byte(`{"schemaVersion":29,"workflows":[{"name":"w","triggers":[null,{"_type":"dispatch","inputs":{"a":{"type":"string"}}}],"jobs":[]}]}`))
	f.Add([]byte("{\"a\":1,\n\"b\":\"\\u12"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		file, perr := Load(raw, "acme/app", "main")
		if (file == nil) == (perr == nil) {
			t.Fatalf("file %v and error %v", file, perr)
		}
		if perr != nil {
			if perr.Message == "" || perr.Offset > len(raw)*3+1 {
				t.Fatalf("error %+v", perr)
			}
			return
		}
		// What was read and written is read again as the same.
		out, err := Marshal(file)
		if err != nil {
			t.Fatal(err)
		}
		again, perr := Load(out, "acme/app", "main")
		if len(out) > MaxBytes {
			return
		}
		if perr != nil {
			t.Fatalf("written document does not load: %v\n%s", perr, out)
		}
		second, err := Marshal(again)
		if err != nil || !bytes.Equal(out, second) {
			t.Fatalf("written again differently (%v):\n%s\n%s", err, out, second)
		}
	})
}
