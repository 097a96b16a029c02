package compile

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/author/bundle"
	"kici/internal/core/lockfile"
	"kici/internal/vectors"
)

func TestFunctionsAreQuotedAsTheyStandInTheirFile(t *testing.T) {
	tests := []struct{ name, script, function, want string }{
		{"one line", "job({ env: (e) => e.a === \"x\" ? e.b : [e.c, 1] });", "(e) => e.a === \"x\" ? e.b : [e.c, 1]", "(e) => e.a === \"x\" ? e.b : [e.c, 1]"},
		{"an object of one member", "f((e) => ({\n  A: e.a\n}));", "(e) => ({\n  A: e.a\n})", "(e) => ({ A: e.a })"},
		{"an object of several, three deep", "var w = workflow(\"w\", {\n  on: push(),\n  jobs: [\n    job(\"a\", { runsOn: \"x\", env: (e) => ({ A: e.a, B: { c: 1, d: 2 } }) }),\n    b,\n    c\n  ]\n});",
			"(e) => ({ A: e.a, B: { c: 1, d: 2 } })", "(e) => ({\n\t\t\t\tA: e.a,\n\t\t\t\tB: {\n\t\t\t\t\tc: 1,\n\t\t\t\t\td: 2\n\t\t\t\t}\n\t\t\t})"},
		{"lists of two are not deeper", "workflow({ jobs: [job({ a, env: (e) => { return e; } }), x], on });", "(e) => { return e; }", "(e) => {\n\t\t\treturn e;\n\t\t}"},
		{"a body", "const f = (e) => {\n  const { a, ...rest } = e;\n  // why\n  if (a) return a;\n  else {\n    return \"no\";\n  }\n};", "(e) => {\n  const { a, ...rest } = e;\n  // why\n  if (a) return a;\n  else {\n    return \"no\";\n  }\n}",
			"(e) => {\n\tconst { a, ...rest } = e;\n\tif (a) return a;\n\telse {\n\t\treturn \"no\";\n\t}\n}"},
		{"patterns stay on their line", "f((e, { a = { x: 1, y: 2 }, b } = {}) => [a, b, e]);", "(e, { a = { x: 1, y: 2 }, b } = {}) => [a, b, e]",
			"(e, { a = {\n\tx: 1,\n\ty: 2\n}, b } = {}) => [\n\ta,\n\tb,\n\te\n]"},
		{"cases", "f((e) => {\n  switch (e.a) {\n    case \"x\":\n      return 1;\n    case \"y\": {\n      return 2;\n    }\n    default:\n      g();\n      return { a: 1, b: 2 };\n  }\n});",
			"(e) => {\n  switch (e.a) {\n    case \"x\":\n      return 1;\n    case \"y\": {\n      return 2;\n    }\n    default:\n      g();\n      return { a: 1, b: 2 };\n  }\n}",
			"(e) => {\n\tswitch (e.a) {\n\t\tcase \"x\": return 1;\n\t\tcase \"y\": {\n\t\t\treturn 2;\n\t\t}\n\t\tdefault:\n\t\t\tg();\n\t\t\treturn {\n\t\t\t\ta: 1,\n\t\t\t\tb: 2\n\t\t\t};\n\t}\n}"},
		{"statements within statements", "f((e) => {\n  for (const x of e.a)\n    if (x.b)\n      return x.c;\n    else\n      return { a: 1 };\n  while (e.n)\n    continue;\n});", "(e) => {\n  for (const x of e.a)\n    if (x.b)\n      return x.c;\n    else\n      return { a: 1 };\n  while (e.n)\n    continue;\n}",
			"(e) => {\n\tfor (const x of e.a) if (x.b) return x.c;\n\telse return { a: 1 };\n\twhile (e.n) continue;\n}"},
		{"what was written over several lines", "f((e, {\n  a,\n  b\n}) => String(\n  e.x,\n  [\n    a,\n    b\n  ],\n  {\n    a\n  }\n));", "(e, {\n  a,\n  b\n}) => String(\n  e.x,\n  [\n    a,\n    b\n  ],\n  {\n    a\n  }\n)",
			"(e, { a, b }) => String(e.x, [a, b], { a })"},
		{"quotes and undefined", "f((e) => e.a === void 0 ? 'say \"it\\'s\"' : e.b);", "(e) => e.a === void 0 ? 'say \"it\\'s\"' : e.b", "(e) => e.a === undefined ? \"say \\\"it's\\\"\" : e.b"},
		{"templates and regular expressions", "f((e) => `a${e.a.replace(/[/\"]{1,2}/g, `-${e.b}`)}{b,c}`);", "(e) => `a${e.a.replace(/[/\"]{1,2}/g, `-${e.b}`)}{b,c}`", "(e) => `a${e.a.replace(/[/\"]{1,2}/g, `-${e.b}`)}{b,c}`"},
		{"loops and calls", "f(function(e) {\n  for (const [k, v] of Object.entries({ ...e, z: 1 })) {\n    if (v) return k;\n  }\n  return [e.a, e.b].filter((x) => !!x).join(\"-\");\n});",
			"function(e) {\n  for (const [k, v] of Object.entries({ ...e, z: 1 })) {\n    if (v) return k;\n  }\n  return [e.a, e.b].filter((x) => !!x).join(\"-\");\n}",
			"function(e) {\n\tfor (const [k, v] of Object.entries({\n\t\t...e,\n\t\tz: 1\n\t})) {\n\t\tif (v) return k;\n\t}\n\treturn [e.a, e.b].filter((x) => !!x).join(\"-\");\n}"},
		{"members that are functions", "f((e) => ({ get a() {\n  return 1;\n}, b: {} }));", "(e) => ({ get a() {\n  return 1;\n}, b: {} })", "(e) => ({\n\tget a() {\n\t\treturn 1;\n\t},\n\tb: {}\n})"},
		{"not in the script", "f();", "(e) => ({ a: 1, b: 2 })", ""},
		{"at another indentation", "f(g(() => {\n  return (e) => {\n    return e;\n  };\n}));", "(e) => {\n        return e;\n      }", "(e) => {\n\t\treturn e;\n\t}"},
		{"in a class and a generator", "class A extends B {\n  m() {\n    return job({ runsOn, env: (e) => ({ a: 1, b: 2 }) });\n  }\n}", "(e) => ({ a: 1, b: 2 })", "(e) => ({\n\t\t\t\ta: 1,\n\t\t\t\tb: 2\n\t\t\t})"},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, layOut(tt.script, "").quote(0, tt.function)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestWhatIsNoScriptStaysAsItIs(t *testing.T) {
	for _, text := range []string{"(e) => ({\n  a: 1,\n  b: 'open\n})", "(e) => `open", "#\n{ a, b }"} {
		if got := layOut(text, ""); got.text != text || got.quote(0, "e") != "" {
			t.Errorf("%q became %q", text, got.text)
		}
	}
	if got := layOut("f((e) => 1);", "").quote(0, "`open"); got != "" {
		t.Errorf("found %q", got)
	}
}

// One text may stand at several places of a file. The job that has the function tells which it is.
func TestAFunctionIsTheOneOfItsJob(t *testing.T) {
	root := repository(t, map[string]string{
		".kici/lib/shared.ts": "export const shared = {\n  env: (e: any) => ({ A: e.type, C: 'other file' }),\n};\n",
		".kici/workflows/ci.ts": strings.ReplaceAll(`import { job, workflow } from '@kici-dev/sdk';
import { shared } from '../lib/shared';

const run = async () => {};
const first = job('first', { runsOn: 'x', run, env: (e) => ({ A: e.type, B: 'b' }) });
export default workflow('ci', {
  on: [],
  jobs: [
    first,
    job('second', { runsOn: 'x', run, env: (e) => ({ A: e.type, B: 'b' }) }),
    job('third', { runsOn: 'x', run, ...shared }),
    job('fourth', { runsOn: 'x', run, env: (e) => ({ A: ~\t${e.type}\u00e9\n\~~ }) }),
  ],
});
`, "~", "`")})
	res, err := Compile(t.Context(), Options{Dir: root})
	if err != nil {
		t.Fatal(err)
	}
	file, bad := lockfile.Load(res.Lock, "", "")
	if bad != nil {
		t.Fatal(bad)
	}
	for i, want := range []string{
		"(e) => ({\n\t\tA: e.type,\n\t\tB: \"b\"\n\t})",
		"(e) => ({\n\t\t\t\tA: e.type,\n\t\t\t\tB: \"b\"\n\t\t\t})",
		"(e) => ({\n\tA: e.type,\n\tC: \"other file\"\n})",
		"(e) => ({ A: `\\t${e.type}\\u00e9\\n\\`` })",
	} {
		if diff := cmp.Diff(want, file.Workflows[0].Jobs[i].Env.Inline.Expression); diff != "" {
			t.Errorf("job %d (-want +got):\n%s", i, diff)
		}
	}
}

// Whatever is laid out stays the same program.
func TestLayingOutKeepsTheProgram(t *testing.T) {
	sources, err := filepath.Glob("../sdk/ts/*/*.ts")
	if err != nil || len(sources) < 40 {
		t.Fatalf("%d sources: %v", len(sources), err)
	}
	words := func(script string) (list []string) {
		tokens, ok := scan(script)
		if !ok {
			t.Error("the script has something that is no token")
		}
		for _, token := range tokens {
			list = append(list, token.text)
		}
		return list
	}
	for _, source := range sources {
		script := bundle.Strip(source, read(t, source)).Text
		again := bundle.Strip("again.js", layOut(script, "").text).Text
		if diff := cmp.Diff(words(script), words(again)); diff != "" {
			t.Errorf("%s (-before +after):\n%s", source, diff)
		}
	}
}

// The places of steps in a sample lock count lines and columns of the script that another compiler has made of the sample.
// Laid out as we do it, every step of every sample stands at that column, and as many lines below the first.
func TestSamplesAreLaidOutAsTheirCompilerDid(t *testing.T) {
	sources, err := filepath.Glob(vectors.Samples("workflows", "*.ts"))
	if err != nil || len(sources) == 0 {
		t.Fatalf("no samples: %v", err)
	}
	compared := 0
	for _, source := range sources {
		name := strings.TrimSuffix(filepath.Base(source), ".ts")
		if name == "capture" {
			continue // its lock was made of several states of it
		}
		want := placesOfSteps(t, read(t, vectors.Samples("locks", name+".lock.json")))
		script := bundle.Strip(source, read(t, source)).Text
		got := stepCalls(layOut(script, "").text)
		fits := func(above int) bool {
			return !slices.ContainsFunc(want, func(p [2]int) bool { return !slices.Contains(got, [2]int{p[0] + above, p[1]}) })
		}
		above := 0 // the other script begins with fewer lines of imports
		for above < 30 && !fits(above) {
			above++
		}
		if above == 30 {
			t.Errorf("%s: steps at\n%v, want\n%v", name, got, want)
		}
		compared += len(want)
	}
	if compared < 60 {
		t.Errorf("only %d places were compared", compared)
	}
}

// placesOfSteps are line and column of those that a lock has places of in the author's own file.
func placesOfSteps(t *testing.T, lock string) (places [][2]int) {
	t.Helper()
	file, bad := lockfile.Load([]byte(lock), "", "")
	if bad != nil {
		t.Fatal(bad)
	}
	for _, w := range file.Workflows {
		for _, j := range w.Jobs {
			for _, s := range lockfile.Flatten(j.Steps) {
				if s.SourceLocation != nil && strings.HasPrefix(s.SourceLocation.File, ".kici/") {
					places = append(places, [2]int{s.SourceLocation.Line, s.SourceLocation.Column})
				}
			}
		}
	}
	return places
}

// stepCalls are line and column of every call of step in a script.
func stepCalls(script string) (places [][2]int) {
	call := regexp.MustCompile(`\bstep\(`)
	row := 0
	for line := range strings.Lines(script) {
		row++
		for _, at := range call.FindAllStringIndex(line, -1) {
			places = append(places, [2]int{row, at[0] + 1})
		}
	}
	return places
}
