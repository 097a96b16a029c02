package bundle

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/evanw/esbuild/pkg/api"
)

// freePrefix marks, in a bundle for the embedded engine, each use of a global that only node has. esbuild replaces
// names that no scope of the bundle declares and nothing else, so a mark in the output is a free global for certain.
const freePrefix = "__kici_free_"

// nodeGlobals are the globals of node that the embedded engine does not offer. What the engine or the programs for it
// learn to offer leaves this list. require is not in it: esbuild answers for it where it can, see freeUse.
var nodeGlobals = strings.Fields(`
	process Buffer global __dirname __filename setImmediate clearImmediate
	Intl WebAssembly
	TextDecoderStream TextEncoderStream Crypto CryptoKey SubtleCrypto
	FormData WebSocket EventSource navigator
	CustomEvent DOMException MessageChannel MessagePort MessageEvent BroadcastChannel
	ReadableStream WritableStream TransformStream ReadableStreamDefaultReader WritableStreamDefaultWriter
	ByteLengthQueuingStrategy CountQueuingStrategy CompressionStream DecompressionStream
	Performance PerformanceEntry PerformanceObserver`)

// builtins are node's modules that may be imported without the scheme `node:`.
var builtins = strings.Fields(`
	assert async_hooks buffer child_process cluster console constants crypto dgram diagnostics_channel dns domain events
	fs http http2 https inspector module net os path perf_hooks process punycode querystring readline repl stream
	string_decoder sys timers tls trace_events tty url util v8 vm wasi worker_threads zlib`)

// isBuiltin reports whether the import names a module of node itself, such as `node:os`, `fs` or `fs/promises`.
func isBuiltin(name string) bool {
	if strings.HasPrefix(name, "node:") {
		return true
	}
	base, _, _ := strings.Cut(name, "/")
	return slices.Contains(builtins, base)
}

func freeGlobalDefines() map[string]string {
	defines := map[string]string{"import.meta": freePrefix + "import_meta"}
	for _, name := range nodeGlobals {
		defines[name] = freePrefix + name
	}
	return defines
}

// freeUse finds the marks. One after typeof is a question whether the global is there, which the engine answers by
// itself. A call of esbuild's stand-in for require is one that it could not resolve when bundling.
var freeUse = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(typeof\s+)?\b(?:` + freePrefix + `(\w+)|__(require)(?:\.|\([^)]))`)
})

// needsNode gives the reason why a bundle made for the embedded engine must run on node, "" when it need not. A bundle
// that fails for another reason is an error.
func (b *build) needsNode(out api.BuildResult) (string, error) {
	if len(b.found.imports) > 0 {
		return b.importReason(), nil
	}
	for _, m := range out.Errors {
		if strings.HasPrefix(m.Text, "Top-level await") {
			return "top-level await" + place(b.diagnostics([]api.Message{m})[0]), nil
		}
	}
	if len(out.Errors) > 0 {
		return "", b.diagnostics(out.Errors)
	}
	res, err := b.result(out)
	if err != nil {
		return "", err
	}
	return freeGlobal(res)
}

// importReason names the first such import: by file, so that the same workflow always gives the same reason. The
// author's own files come before those of packages.
func (b *build) importReason() string {
	rank := func(f finding) string {
		file := b.relative(f.importer)
		if strings.Contains(file, "node_modules/") {
			return "1" + file + " " + f.what
		}
		return "0" + file + " " + f.what
	}
	first := slices.MinFunc(b.found.imports, func(x, y finding) int { return strings.Compare(rank(x), rank(y)) })
	return fmt.Sprintf("%s (%s)", first.what, b.relative(first.importer))
}

func freeGlobal(res Result) (string, error) {
	if !bytes.Contains(res.Script, []byte(freePrefix)) && !bytes.Contains(res.Script, []byte("__require")) {
		return "", nil // the common case, and the expression below takes its time
	}
	for _, m := range freeUse().FindAllSubmatchIndex(res.Script, -1) {
		if m[2] >= 0 || m[4] >= 0 && guarded(res.Script[:m[0]], res.Script[m[4]:m[5]]) {
			continue
		}
		name := "require"
		if m[4] >= 0 {
			name = strings.ReplaceAll(string(res.Script[m[4]:m[5]]), "import_meta", "import.meta")
		}
		smap, err := ParseMap(res.Map)
		if err != nil {
			return "", err
		}
		line, column := position(res.Script, m[0])
		reason := "use of global " + name
		if at, ok := smap.Lookup(line, column); ok {
			reason += place(Diagnostic{File: at.File, Line: at.Line, Column: at.Column})
		}
		return reason, nil
	}
	return "", nil
}

// guarded tells whether the statement has asked before this use of a global whether it is there, as packages do that run
// on every host: `typeof process === "object" && process.env.DEBUG`. The engine then never comes to the use.
func guarded(before, name []byte) bool {
	statement := before[bytes.LastIndexAny(before, ";{}")+1:]
	return bytes.Contains(statement, append([]byte("typeof "+freePrefix), name...))
}

func place(d Diagnostic) string {
	if d.File == "" {
		return ""
	}
	return fmt.Sprintf(" (%s:%d:%d)", d.File, d.Line, d.Column)
}

// position is the line and column, both from 1, of a byte of the script.
func position(script []byte, at int) (line, column int) {
	before := string(script[:at])
	return strings.Count(before, "\n") + 1, at - strings.LastIndex(before, "\n")
}
