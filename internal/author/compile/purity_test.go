package compile

import "testing"

func TestPure(t *testing.T) {
	tests := []struct {
		text string
		want bool
	}{
		{`(event) => event.targetBranch === "main" ? "production" : "preview"`, true},
		{"({ targetBranch, payload: { number } }) => `${targetBranch}#${number}`", true},
		{`(e) => ({ BRANCH: e.targetBranch, N: String(e.payload.n ?? 0) })`, true},
		{`(e) => { const parts = e.targetBranch.split("/"); let last = parts[parts.length - 1]; return last; }`, true},
		{`(e) => { for (const k of Object.keys(e)) { if (k) return k; } return "x"; }`, true},
		{`({ targetBranch: b = "main", ...rest }) => b + rest.type`, true},
		{`([first, , third], ...more) => first + third + more.length`, true},
		{`function (e) { return e.type; }`, true},
		{`function named(e) { return e.type; }`, true},
		{`e => e.type`, true},
		{`() => undefined`, true},
		{`(e) => e?.payload?.["release"]?.tag ?? "none"`, true},
		{`(e) => /^v(\d+)/.test(e.targetBranch) ? "a" : "b"`, true},
		{`(e) => Math.max(1, parseInt(e.payload.n)) + ""`, true},
		{`(e) => ({ targetBranch: "the key is only a word" }).targetBranch`, true},
		{`(e) => ({ [e.type]: "computed" })`, true},
		{`(e) => e["constructor"].name`, true},
		{`(e, n = 1 + e.n) => String(n)`, true},
		{`({ a: { b: [c = "x"] } }) => c`, true},
		{`({ [String("a")]: v }) => v`, true},
		{`(...all) => all.length + ""`, true},
		{`(e) => { const { a = "x", ...rest } = e; return a + Object.keys(rest).length; }`, true},
		{`(e) => { for (const [k, v] of Object.entries(e.payload)) if (v) return k; return ""; }`, true},
		{`(e) => { for (const k in e.payload) return k; return ""; }`, true},
		{`(e) => { switch (e.type) { case "push": return "a"; default: return "b"; } }`, true},
		{`(e) => { if (!e.payload) return "none"; else { const n = e.payload.n; return String(n); } }`, true},
		{`(e) => { while (true) {} }`, true},
		{`(e) => { return later; const later = e.type; }`, true},
		{`(e) => [1, 2].map(() => e.type).join()`, true},
		{`(e) => e.items.map((e) => e.name).join()`, true},
		{"(e) => String.raw`a${e.type}\\n`", true},
		{`(e) => typeof e.payload === "object" && "n" in e.payload ? "y" : "n"`, true},
		{`(e) => e.payload instanceof Array ? "list" : void 0`, true},
		{`(e) => [...e.labels, { ...e.payload }].length + ""`, true},
		{`(e) => (0, e.type)`, true},
		{`(e) => e.class + e.new + e.this + e.await`, true},
		{`(e) => "await new class this = ++ delete throw"`, true},
		{`(e) => /* new Date() */ e.type`, true},
		{`(e) => ({ name() { return 1; }, get x() { return 2; } }).x + ""`, true},
		{`(Math) => Math.type`, true},
		{`(e) => -e.n + +e.n + ~e.n + ""`, true},
		{`(e) => 10n ** 2n + ""`, true},
		{`(e) => encodeURIComponent(decodeURI(e.targetBranch)) + isNaN(NaN) + isFinite(Infinity) + parseFloat("1")`, true},

		{`async (e) => e.type`, false},
		{`function* (e) { return e.type; }`, false},
		{`async function (e) { return e.type; }`, false},
		{`env(e) { return e.type; }`, false},
		{`(e) => region + e.type`, false},
		{`(e) => ({ region })`, false},
		{`(e) => ({ [region]: 1 })`, false},
		{`(e) => e.items.map((x) => x.name)`, false},
		{`(e) => e.items.map(function (x) { return x; })`, false},
		{`(e) => process.env.X`, false},
		{`(e) => require("os").hostname()`, false},
		{`(e) => import("os")`, false},
		{`(e) => new Date().toISOString()`, false},
		{`(e) => this.x`, false},
		{`(e) => { e.type = "x"; return e.type; }`, false},
		{`(e) => { let n = 0; n += 1; return String(n); }`, false},
		{`(e) => { let n = 0; n++; return String(n); }`, false},
		{`(e) => { let n; n ??= "x"; return n; }`, false},
		{`(e) => { var n = "x"; return n; }`, false},
		{`(e) => { delete e.type; return "x"; }`, false},
		{`(e) => { throw "x"; }`, false},
		{`(e) => { try { return e.type; } finally { } }`, false},
		{`(e) => { class A {} return "x"; }`, false},
		{`(e, d = Date.now()) => d`, false},
		{`(e) => Date.now()`, false},
		{`(e) => globalThis.x`, false},
		{`(e) => eval("1")`, false},
		{`(e) => arguments[0]`, false},
		{`(e) => { function helper() { return 1; } return helper(); }`, false},
		{`function again(e) { return e.n ? again(e.next) : ""; }`, false},
		{`(e) => [1].map((x, y) => e.type)`, false},
		{`(e) => [1].map((x) => e.type + x)`, false},
		{`(e) => [[1]].map(([x]) => x)`, false},
		{`({ [region]: v }) => v`, false},
		{`({ a = region }) => a`, false},
		{`(e, f = () => region) => f()`, false},
		{`(e) => { for (const k of region) return k; return ""; }`, false},
		{`(e) => { const { a = region } = e; return a; }`, false},
		{"(e) => `${region}`", false},
		{"(e) => region`x`", false},
		{`(e) => { for (let i = 0; i < 3; i = i + 1) {} return ""; }`, false},
		{`(e) => { for (let i = 0; i < 3; i++) {} return ""; }`, false},
		{`(e) => { let k; for (k of ["a"]) {} return k; }`, true},
		{`(e) => { [e.a] = ["x"]; return e.a; }`, false},
		{`(e) => { ({ a: e.a } = { a: "x" }); return e.a; }`, false},
		{`(e) => { e.a ||= "x"; return e.a; }`, false},
		{`(e) => { e.n **= 2; e.n >>>= 1; return ""; }`, false},
		{`(e) => --e.n`, false},
		{`(e) => e.items.map(async () => "x")`, false},
		{`(e) => { for await (const x of e.items) {} return ""; }`, false},
		{`(e) => [1].map(function () { return this; })`, false},
		{`(e) => ({ m() { return super.x; } })`, false},
		{`function (e) { return new.target; }`, false},
		{`(e) => import.meta.url`, false},
		{`(e) => { try { return e.x; } catch { return ""; } }`, false},
		{`(e) => { for (var k in e) {} return ""; }`, false},
		{`(e) => class {}`, false},
		{`(e) => new Set(e.labels).size`, false},
		{`(e) => [...new Map()]`, false},
		{`(e) => Symbol.iterator in e`, false},
		{`(e) => BigInt(1) + RegExp("a").source`, false},
		{`(e) => Promise.resolve("x")`, false},
		{`(e) => fetch("x")`, false},
		{`(e) => console.log(e)`, false},
		{`(e) => structuredClone(e)`, false},
		{`(e) => setTimeout(() => 1, 1)`, false},
		{`(e) => Function("return 1")()`, false},
		{`get x() { return 1; }`, false},
		{`set x(v) { }`, false},
		{`[e => e.type][0]`, false},
		{`(e) => e.type; (e) => e.x`, false},
		{`((e) => e.type)()`, false},
		{`class { static x() {} }`, false},
		{`(e) => `, false},
		{`e.type`, false},
		{`(e) => e.type), (1`, false},
		{``, false},
	}
	for _, tt := range tests {
		if got := pure(tt.text); got != tt.want {
			t.Errorf("pure(%s) = %v, want %v", tt.text, got, tt.want)
		}
	}
}

func FuzzPure(f *testing.F) {
	for _, seed := range []string{
		`(e) => e.x`, "(e) => { for (const x of `a${e}`) { return x } }", `({ a: [b = 1, ...c], ...d }) => b`, `function (e) { return e?.["x"] }`,
		`(e) => /[/\]]+/u.test(e.x) ? 1 : 2`, `({ [x]: y }) => y`, `(e) => ({ get a() { return 1 }, async b() {}, *c() {} })`,
		`(e) => e.items.map((x) => x.name)`, `(e) => { a: for (;;) break a }`, `async e => await e`, `(e = (f => f)(1)) => e`, "(e) => `${`${e}`}`",
		`(e) => { switch (e) { case 1: { let x = 2; return x } } }`, `e => e ? ? e`, `(e)=>(((((((((e)))))))))`, `class A { static { this.x = 1 } }`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		// It must end and must not panic, whatever an author writes; and what is awaited is never a server's to evaluate.
		if pure(text) && pure("async "+text) {
			t.Errorf("%q is called pure with async before it, too", text)
		}
	})
}
