package sdk_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/evanw/esbuild/pkg/api"
	"github.com/google/go-cmp/cmp"

	"kici/internal/author/sdk"
	"kici/internal/kit/script"
	"kici/internal/vectors"
)

// machine loads TypeScript that may import embedded modules and leaves its exports as the global `t`.
func machine(t testing.TB, source string) *script.VM {
	t.Helper()
	out := api.Build(api.BuildOptions{
		Stdin:      &api.StdinOptions{Contents: source, Loader: api.LoaderTS},
		Bundle:     true,
		Format:     api.FormatIIFE,
		GlobalName: "t",
		Target:     api.ES2023,
		LogLevel:   api.LogLevelSilent,
		Plugins: []api.Plugin{{Name: "embedded", Setup: func(b api.PluginBuild) {
			b.OnResolve(api.OnResolveOptions{Filter: `.*`}, func(a api.OnResolveArgs) (api.OnResolveResult, error) {
				importer := a.Importer
				if a.Namespace != "embedded" {
					importer = "ts/sdk/test.ts"
				}
				file, _ := sdk.Resolve(importer, a.Path)
				return api.OnResolveResult{Path: file, Namespace: "embedded"}, nil
			})
			b.OnLoad(api.OnLoadOptions{Filter: `.*`, Namespace: "embedded"}, func(a api.OnLoadArgs) (api.OnLoadResult, error) {
				text, _ := sdk.Module(a.Path)
				return api.OnLoadResult{Contents: &text, Loader: api.LoaderTS}, nil
			})
		}}},
	})
	for _, e := range out.Errors {
		t.Fatal(e.Text)
	}
	vm, err := script.New(script.Limits{Timeout: 20 * time.Second, ResultBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = vm.Close() })
	if err := vm.Run(t.Context(), "test", string(out.OutputFiles[0].Contents)); err != nil {
		t.Fatal(err)
	}
	return vm
}

// call calls an export with JSON arguments. An error is the message that was thrown.
func call(t testing.TB, vm *script.VM, function string, args ...any) (result, thrown string) {
	t.Helper()
	var raw []json.RawMessage
	for _, a := range args {
		r, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		raw = append(raw, r)
	}
	out, err := vm.Call(t.Context(), "t."+function, raw...)
	if err != nil {
		return "", err.Error()
	}
	return string(out), ""
}

func TestModulesAreEmbedded(t *testing.T) {
	for _, name := range []string{"@kici-dev/sdk", "@kici-dev/sdk/runtime", "zod", "kici:compile", "kici:compile-node"} {
		if text, ok := sdk.Module(name); !ok || text == "" {
			t.Errorf("no module %s", name)
		}
	}
	if _, ok := sdk.Module("left-pad"); ok {
		t.Error("a module that is not embedded was found")
	}
	if file, ok := sdk.Resolve("ts/sdk/index.ts", "./core"); !ok || file != "ts/sdk/core.ts" {
		t.Errorf("relative import gives %q", file)
	}
	for _, text := range []string{sdk.Declarations(), sdk.SchemaDeclarations(), sdk.HostDeclarations()} {
		if !strings.Contains(text, "declare ") {
			t.Error("declarations without a declaration")
		}
	}
}

func TestEveryExportIsDeclared(t *testing.T) {
	vm := machine(t, `import * as sdk from './index'; export const names = () => Object.keys(sdk);`)
	raw, _ := call(t, vm, "names")
	var names []string
	if err := json.Unmarshal([]byte(raw), &names); err != nil {
		t.Fatal(err)
	}
	if len(names) < 50 {
		t.Errorf("the SDK exports %d names", len(names))
	}
	text := sdk.Declarations()
	for _, name := range names {
		declared := regexp.MustCompile(`(?m)^  export (?:function|const|class) ` + name + `\b|\bas ` + name + ` }`)
		if !declared.MatchString(text) {
			t.Errorf("%s is not declared", name)
		}
	}
}

// An editor shows what stands above an option, so nothing stands there alone. What schemas offer is known from zod.
func TestDeclarationsExplainEveryOption(t *testing.T) {
	begins := regexp.MustCompile(`^  export interface (\w+)`)
	member := regexp.MustCompile(`^    (?:readonly )?([\w$]+)\??[:(<]`)
	owner, before, members := "", "", 0
	for line := range strings.SplitSeq(sdk.Declarations(), "\n") {
		if m := begins.FindStringSubmatch(line); m != nil {
			owner = m[1]
		}
		if strings.HasPrefix(line, "  }") || strings.HasSuffix(owner, "Builder") {
			owner = ""
		}
		if m := member.FindStringSubmatch(line); m != nil && owner != "" && m[1] != "_tag" {
			members++
			if !strings.HasSuffix(before, "*/") && !strings.Contains(line, "/**") {
				t.Errorf("%s.%s is not explained", owner, m[1])
			}
		}
		before = line
	}
	if members < 200 {
		t.Errorf("%d members were found", members)
	}
}

func TestVectorsLabels(t *testing.T) {
	vm := machine(t, `import { readRunsOn, readRunsOnAll } from './labels';
const exact = (value) => ({ kind: 'exact', value });
export const runsOnAll = (value) => readRunsOnAll(value, exact);
export const pick = (runsOn) => readRunsOn(runsOn, exact).pick;
export function normalizeRunsOn(runsOn) {
  const { labels, exclude } = readRunsOn(runsOn, exact);
  return { labels: labels.map((m) => m.value), exclude: exclude.map((m) => m.value) };
}`)
	functions := []string{"runsOnAll", "pick", "normalizeRunsOn"}
	for _, c := range vectors.Load(t, "labels.json") {
		var in struct {
			Fn   string
			Args []any
		}
		if err := json.Unmarshal(c.Input, &in); err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(functions, in.Fn) {
			continue
		}
		got, thrown := call(t, vm, in.Fn, in.Args...)
		same(t, c.Name, string(c.Expected), got, thrown)
	}
	for _, c := range vectors.LoadAs[struct {
		Name, Fn string
		Args     []any
		Expected struct{ Result json.RawMessage }
	}](t, "scaler-labels.json") {
		if c.Fn == "normalizeRunsOn" {
			got, thrown := call(t, vm, c.Fn, c.Args...)
			same(t, c.Name, string(c.Expected.Result), got, thrown)
		}
	}
}

// same compares JSON without regard to the order of keys.
func same(t *testing.T, name, want, got, thrown string) {
	t.Helper()
	if thrown != "" {
		t.Errorf("%s: threw %s, want %s", name, thrown, want)
		return
	}
	var a, b any
	if err := json.Unmarshal([]byte(want), &a); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(got), &b); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(a, b); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

func TestVectorsMatrix(t *testing.T) {
	vm := machine(t, `import { expandMatrix, applyIncludeExclude } from './matrix';
import { memoryBytes, checkResources } from './resources';
import { resolveWhen } from './needs';
export const expand = (m) => JSON.stringify(expandMatrix(m));
export const incexc = (a, i, e) => JSON.stringify(applyIncludeExclude(a, i, e));
export const when = (w) => JSON.stringify(resolveWhen(w));
export const memory = (m) => JSON.stringify(memoryBytes(m));
export const resources = (r) => (checkResources(r), '{"ok":true}');`)
	for _, c := range vectors.Load(t, "matrix.json") {
		var in struct {
			Fn   string
			Args []json.RawMessage
		}
		if err := json.Unmarshal(c.Input, &in); err != nil {
			t.Fatal(err)
		}
		switch in.Fn {
		case "expand", "incexc", "when", "memory", "resources":
		default:
			continue
		}
		args := make([]any, len(in.Args))
		for i, a := range in.Args {
			args[i] = a
		}
		got, thrown := call(t, vm, in.Fn, args...)
		if strings.Contains(string(c.Expected), `"error"`) || string(c.Expected) == `{"ok":false}` || strings.Contains(string(c.Expected), `"ok": false`) {
			if thrown == "" {
				t.Errorf("%s: got %s, want an error", c.Name, got)
			}
			continue
		}
		if thrown != "" {
			t.Errorf("%s: threw %s", c.Name, thrown)
			continue
		}
		var text string
		if err := json.Unmarshal([]byte(got), &text); err != nil {
			t.Fatal(err)
		}
		if in.Fn == "resources" {
			continue
		}
		// Compared as text: the order of keys is part of the result.
		if want := compactJSON(t, c.Expected); text != want {
			t.Errorf("%s: got %s, want %s", c.Name, text, want)
		}
	}
}

func compactJSON(t *testing.T, raw []byte) string {
	t.Helper()
	var b strings.Builder
	inText, escaped := false, false
	for _, c := range string(raw) {
		if !inText && strings.ContainsRune(" \n\t\r", c) {
			continue
		}
		if c == '"' && !escaped {
			inText = !inText
		}
		escaped = c == '\\' && !escaped
		b.WriteRune(c)
	}
	return b.String()
}
