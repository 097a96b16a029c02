package script

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"modernc.org/quickjs"
)

func newVM(t testing.TB, l Limits) *VM {
	t.Helper()
	v, err := New(l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	})
	return v
}

func kindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return ""
}

func TestCall(t *testing.T) {
	v := newVM(t, Limits{})
	err := v.Run(t.Context(), "lib.js", `
		var lib = {
			add: (a, b) => a + b,
			later: async (x) => { await null; return { x } },
			nothing: () => undefined,
			self() { return this === lib },
			fails() { throw new TypeError("no good") },
			rejects: async () => { throw "plain text" },
			strange: async () => { throw Object.create(null) },
			never: () => new Promise(() => {}),
			surrogate: () => "\ud800",
			replaced() { JSON.stringify = () => "broken"; return 1 },
		}`)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		fn   string
		args []string
		want string
		kind Kind
		text string
	}{
		{fn: "lib.add", args: []string{"1", "2"}, want: "3"},
		{fn: "lib.later", args: []string{`{"a":"é"}`}, want: `{"x":{"a":"é"}}`},
		{fn: "lib.nothing", want: ""},
		{fn: "lib.self", want: "true"},
		{fn: "lib.surrogate", want: `"\ud800"`},
		{fn: "lib.replaced", want: "1"},
		{fn: "lib.add", args: []string{"3", "4"}, want: "7"},
		{fn: "lib.fails", kind: KindThrew, text: "no good"},
		{fn: "lib.rejects", kind: KindThrew, text: "plain text"},
		{fn: "lib.strange", kind: KindThrew, text: "a value that cannot be shown was thrown"},
		{fn: "lib.never", kind: KindStalled, text: "the script waits for something that cannot happen"},
		{fn: "lib.absent", kind: KindThrew, text: "lib.absent is not a function"},
		{fn: "absent.too", kind: KindThrew, text: "absent.too is not a function"},
	}
	for _, tt := range tests {
		t.Run(tt.fn, func(t *testing.T) {
			var args []json.RawMessage
			for _, a := range tt.args {
				args = append(args, json.RawMessage(a))
			}
			got, err := v.Call(t.Context(), tt.fn, args...)
			if tt.kind != "" {
				if kindOf(err) != tt.kind || err.Error() != tt.text {
					t.Fatalf("got %v (%s), want %s (%s)", err, kindOf(err), tt.text, tt.kind)
				}
				return
			}
			if err != nil || string(got) != tt.want {
				t.Fatalf("got %s, %v, want %s", got, err, tt.want)
			}
		})
	}
}

func TestErrorsSayWhere(t *testing.T) {
	v := newVM(t, Limits{})
	err := v.Run(t.Context(), "ci.js", "let a = 1;\nlet b = ;\n")
	if kindOf(err) != KindSyntax || !strings.Contains(err.Error(), "ci.js:2:") {
		t.Errorf("syntax error: %v (%s)", err, kindOf(err))
	}
	err = v.Run(t.Context(), "ci.js", "function f() {\n  throw new Error('x')\n}\nf()")
	var e *Error
	if !errors.As(err, &e) || !strings.Contains(e.Stack, "f (ci.js:2:") {
		t.Errorf("stack: %+v", e)
	}
}

func TestHostFunctions(t *testing.T) {
	v := newVM(t, Limits{})
	release := make(chan struct{})
	must(t, v.Host("math.twice", func(args json.RawMessage) (json.RawMessage, error) {
		var in []int
		if err := json.Unmarshal(args, &in); err != nil {
			return nil, err
		}
		return json.Marshal(in[0] * 2)
	}))
	must(t, v.Host("nothing", func(json.RawMessage) (json.RawMessage, error) { return nil, nil }))
	must(t, v.Host("refuse", func(json.RawMessage) (json.RawMessage, error) { return nil, errors.New("refused") }))
	must(t, v.HostAsync("first", func(context.Context, json.RawMessage) (json.RawMessage, error) {
		<-release // ends only after the second has ended: both are at work at once
		return json.RawMessage(`"first"`), nil
	}))
	must(t, v.HostAsync("second", func(context.Context, json.RawMessage) (json.RawMessage, error) {
		close(release)
		return nil, errors.New("second failed")
	}))
	must(t, v.Run(t.Context(), "x", `
		async function main() {
			const order = [];
			const all = Promise.all([
				first().then((x) => order.push(x)),
				second().catch((e) => order.push(e instanceof Error && e.message)),
			]);
			let thrown; try { refuse() } catch (e) { thrown = e.message }
			await all;
			return { order: order.sort(), thrown, twice: math.twice(21), nothing: nothing() === undefined, native: typeof __kiciNative };
		}`))
	got, err := v.Call(t.Context(), "main")
	if err != nil {
		t.Fatal(err)
	}
	want := `{"order":["first","second failed"],"thrown":"refused","twice":42,"nothing":true,"native":"undefined"}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
}

func TestCloseEndsAsyncHostFunctions(t *testing.T) {
	v, err := New(Limits{})
	must(t, err)
	var seen error
	must(t, v.HostAsync("wait", func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
		<-ctx.Done()
		seen = context.Cause(ctx)
		return nil, seen
	}))
	must(t, v.Run(t.Context(), "x", `function start() { wait(); return 1 }`))
	if _, err := v.Call(t.Context(), "start"); err != nil {
		t.Fatal(err)
	}
	must(t, v.Close())
	if seen != errClosed {
		t.Errorf("host function ended with %v", seen)
	}
	if _, err := v.Call(t.Context(), "start"); err == nil {
		t.Error("a closed VM ran")
	}
}

func TestContextEndsScriptAndWaiting(t *testing.T) {
	for name, source := range map[string]string{
		"in a loop":        `function main() { entered(); for (;;) ; }`,
		"between turns":    `async function main() { entered(); for (;;) await null; }`,
		"in a host call":   `async function main() { entered(); await forever(); }`,
		"caught and again": `function main() { entered(); for (;;) try { for (;;) ; } catch {} }`,
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			v := newVM(t, Limits{Timeout: Unlimited})
			stop := errors.New("the user said so")
			must(t, v.Host("entered", func(json.RawMessage) (json.RawMessage, error) { cancel(stop); return nil, nil }))
			must(t, v.HostAsync("forever", func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
				<-ctx.Done()
				return nil, nil
			}))
			must(t, v.Run(ctx, "x", source))
			if _, err := v.Call(ctx, "main"); !errors.Is(err, stop) {
				t.Errorf("got %v", err)
			}
			if _, err := v.Call(t.Context(), "main"); !errors.Is(err, stop) {
				t.Errorf("a stopped VM ran again: %v", err)
			}
		})
	}
}

// bombs are scripts that take all of something. Each has to end within the limits.
var bombs = map[string]string{
	"endless loop":      `for (;;) ;`,
	"caught loop":       `for (;;) try { for (;;) ; } catch {}`,
	"finally loop":      `for (;;) try { for (;;) ; } finally { continue }`,
	"repeat":            `'x'.repeat(1e9)`,
	"growing array":     `const a = []; for (;;) a.push([1, 2, 3])`,
	"caught growth":     `const a = []; for (;;) try { a.push(new Array(1000).fill('x')) } catch {}`,
	"filled array":      `Array(5e8).fill(0)`,
	"typed array":       `new Uint8Array(4e9)`,
	"deep recursion":    `(function f() { return f() + 1 })()`,
	"proxy recursion":   `let p = {}; for (let i = 0; i < 1e5; i++) p = new Proxy(p, {}); p.x`,
	"catastrophe":       `/^(a+)+$/.test('a'.repeat(64) + '!')`,
	"doubling string":   `let s = 'xy'; for (;;) s += s`,
	"joined string":     `let s = 'x'; for (;;) { s = s + s; s.charCodeAt(0) }`,
	"sort":              `Array.from({ length: 1e7 }, (_, i) => -i).sort()`,
	"parse depth":       `JSON.parse('['.repeat(1e5) + ']'.repeat(1e5))`,
	"source depth":      `eval('('.repeat(1e5) + ')'.repeat(1e5))`,
	"promise flood":     `(function f() { Promise.resolve().then(f); Promise.resolve().then(f) })(); for (;;) ;`,
	"big integer":       `let n = 3n; for (;;) n = n * n`,
	"regex source":      `new RegExp('(?:'.repeat(1e5) + ')'.repeat(1e5))`,
	"getter in a throw": `throw { get message() { for (;;) ; } }`,
	"huge result":       `return Array(1e5).fill('x'.repeat(1e4))`,
	"endless result":    `const o = {}; o.toJSON = () => { for (;;) ; }; return o`,
}

func TestBombsEndWithinTheirLimits(t *testing.T) {
	for name, source := range bombs {
		t.Run(name, func(t *testing.T) {
			v := newVM(t, Limits{})
			must(t, v.Run(t.Context(), "x", "function main() { "+source+" }"))
			if _, err := v.Call(t.Context(), "main"); err == nil {
				t.Error("it ended well")
			} else {
				t.Log(kindOf(err), err)
			}
			if _, err := InlineString(t.Context(), "() => { "+source+" }", nil); err == nil {
				t.Error("inline: it ended well")
			}
		})
	}
}

func TestSelfFeedingPromisesEnd(t *testing.T) {
	v := newVM(t, Limits{})
	must(t, v.Run(t.Context(), "x", `async function main() { for (;;) await null }`))
	if _, err := v.Call(t.Context(), "main"); kindOf(err) != KindTimeout {
		t.Errorf("got %v", err)
	}
}

func TestLargeResultsAreRefused(t *testing.T) {
	v := newVM(t, Limits{})
	must(t, v.Run(t.Context(), "x", `const main = () => 'x'.repeat(70000), fits = () => 'x'.repeat(60000)`))
	must(t, v.Run(t.Context(), "x", `globalThis.main = main; globalThis.fits = fits`))
	if _, err := v.Call(t.Context(), "main"); kindOf(err) != KindTooLarge {
		t.Errorf("got %v", err)
	}
	if _, err := v.Call(t.Context(), "fits"); err != nil {
		t.Error(err)
	}
	if _, err := InlineString(t.Context(), `() => 'x'.repeat(70000)`, nil); kindOf(err) != KindThrew {
		t.Errorf("inline: got %v", err)
	}
}

// Bombs must leave nothing behind: their memory lies outside the Go heap, and the Go heap must not grow either.
func TestMemoryIsGivenBack(t *testing.T) {
	burst := func() {
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range 20 {
					_, _ = InlineString(t.Context(), `(e) => { const a = []; for (let i = 0; i < 1e4; i++) a.push(e.x + i); return a.join().slice(0, 10) }`, json.RawMessage(`{"x":"y"}`))
				}
			})
		}
		all.Wait()
	}
	burst()
	goroutines, before := runtime.NumGoroutine(), heap()
	for range 2 {
		burst()
	}
	if after := heap(); after > before+1<<20 {
		t.Errorf("Go heap grew from %d to %d bytes", before, after)
	}
	if n := runtime.NumGoroutine(); n > goroutines {
		t.Errorf("goroutines grew from %d to %d", goroutines, n)
	}
}

// The engine's memory lies outside the Go heap, so only the process as a whole can tell whether bombs give theirs back: two
// dozen, each with its limit's worth, would leave most of a gigabyte.
func TestBombsGiveTheirMemoryBack(t *testing.T) {
	if resident(t) == 0 {
		t.Skip("this system does not tell the size of a process")
	}
	hungry := []string{"repeat", "growing array", "caught growth", "filled array", "doubling string", "joined string", "big integer", "huge result"}
	round := func() {
		for _, name := range hungry {
			if _, err := InlineString(t.Context(), "() => { "+bombs[name]+" }", nil); err == nil {
				t.Errorf("%s ended well", name)
			}
		}
	}
	round()
	before := resident(t)
	for range 3 {
		round()
	}
	if after := resident(t); after > before+64<<20 {
		t.Errorf("the process grew from %d to %d MiB", before>>20, after>>20)
	}
}

// resident is the memory that the process holds, in bytes; 0 where the system does not tell.
func resident(t *testing.T) uint64 {
	debug.FreeOSMemory()
	raw, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var total, pages uint64
	if _, err := fmt.Sscan(string(raw), &total, &pages); err != nil {
		t.Fatal(err)
	}
	return pages * uint64(os.Getpagesize())
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func BenchmarkInlineString(b *testing.B) {
	event := json.RawMessage(`{"type":"push","targetBranch":"main","payload":{"number":7,"labels":[{"name":"x"}]}}`)
	for b.Loop() {
		if _, err := InlineString(b.Context(), "(event) => `${event.targetBranch}#${event.payload.number}`", event); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		v, err := New(Limits{})
		if err != nil {
			b.Fatal(err)
		}
		_ = v.Close()
	}
}

func BenchmarkHostCall(b *testing.B) {
	v := newVM(b, Limits{Timeout: time.Minute})
	must(b, v.Host("echo", func(args json.RawMessage) (json.RawMessage, error) { return args, nil }))
	must(b, v.Run(b.Context(), "x", fmt.Sprintf(`function main() { for (let i = 0; i < %d; i++) echo(i) }`, 1000)))
	for b.Loop() {
		if _, err := v.Call(b.Context(), "main"); err != nil {
			b.Fatal(err)
		}
	}
}

func TestCompiledCodeRunsAsItsTextDoes(t *testing.T) {
	js, err := quickjs.NewVM()
	if err != nil {
		t.Fatal(err)
	}
	defer js.Close()
	code, err := js.Compile(`globalThis.twice = (x) => 2 * x; globalThis.fails = () => { throw new Error("no") };`, quickjs.EvalGlobal)
	if err != nil {
		t.Fatal(err)
	}
	v := newVM(t, Limits{})
	if err := v.RunCompiled(t.Context(), code); err != nil {
		t.Fatal(err)
	}
	if got, err := v.Call(t.Context(), "twice", json.RawMessage("21")); err != nil || string(got) != "42" {
		t.Errorf("twice(21) = %s, %v", got, err)
	}
	if _, err := v.Call(t.Context(), "fails"); kindOf(err) != KindThrew {
		t.Errorf("err = %v", err)
	}
	if err := v.RunCompiled(t.Context(), []byte{0, 1}); err == nil {
		t.Error("what is no code ran")
	}
}
