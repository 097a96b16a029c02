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
	f.Add(`(e) => e.x`)
	f.Add("(e) => { for (const x of `a${e}`) { return x } }")
	f.Fuzz(func(t *testing.T, text string) {
		pure(text) // must end and must not panic, whatever a lock file's author writes
	})
}
