//go:build unix

package runner

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// What the web's interfaces give is the same on both hosts; node's own are the measure.
func TestWebInterfacesAreNodes(t *testing.T) {
	t.Parallel()
	onNode(t)
	source := workflow("step('web', { timeout: 20000, run: async () => {" + webUses + "} })")
	var got [2]string
	for i, host := range hosts {
		j := run(t, host, source, nil).succeeded()
		if first := j.Logs[JobLog][0]; strings.Contains(first, "embedded") != (host == "embedded") {
			t.Fatalf("%s ran elsewhere: %s", host, first)
		}
		got[i] = strings.ReplaceAll(string(j.Complete.Outputs["web"]), `","`, "\",\n\"")
	}
	if diff := cmp.Diff(got[1], got[0]); diff != "" {
		t.Errorf("(-node +embedded):\n%s", diff)
	}
}

const webUses = `
  const out = [];
  const say = (name, fn) => { try { out.push(name + ' ' + JSON.stringify(fn())); } catch (e) { out.push(name + ' threw ' + e.name); } };
  const parts = (u) => [u.href, u.origin, u.protocol, u.username, u.password, u.host, u.hostname, u.port, u.pathname, u.search, u.hash];
  for (const url of ['http://a', 'HTTP://User:p%40ss@EXAMPLE.com:80/a/../b/./c?x=1 2&é=ü#fr ag', 'https://example.com:443', 'http:\\\\h\\p\\q', 'file:///etc/passwd',
    'file://localhost/x', 'mailto:a@b.c?x y#z', 'foo://h:99/p?q', 'urn:x:y', 'http://192.168.1', 'http://0x7f.1', 'http://256.1.1.1', 'http://[::1]:80/',
    'http://[2001:db8:0:0:1:0:0:1]', 'http://[::ffff:1.2.3.4]/', 'http://[1::2::3]', 'http://münchen.de/ä', 'http://a b', 'http://a:99999', 'http://', '', '//x',
    'http://u:@h', 'http://h/%zz%41', 'http://h?', 'http://h/a%2e%2E/b', ' http://h/\n a ', 'blob:https://x/y', 'wss://h:443/', 'http://日本語.jp', 'foo://h/?a\'b'])
    say(url, () => parts(new URL(url)));
  for (const base of ['http://b/c/d?e#f', 'file:///x/y', 'foo://h/a/b', 'mailto:x'])
    for (const rel of ['x', '../x', '/x', '//h2/x', '?q', '#f', '', '..', 'a:b', 'http:x', '\\x', 'x/./y?z#w']) if (base !== 'mailto:x' || rel[0] === '#')
      say(base + ' ' + rel, () => new URL(rel, base).href);
  say('set', () => { const u = new URL('http://h:1/p?q#f'); u.protocol = 'https'; u.port = '443'; u.hostname = 'x.y'; u.pathname = 'a b?#'; u.search = '?a=1 2'; u.hash = 'z z'; u.username = 'u:'; u.searchParams.append('n', 'é &'); return [u, u.searchParams.get('a')]; });
  say('canParse', () => [URL.canParse('x'), URL.canParse('x', 'http://y')]);
  say('params', () => { const p = new URLSearchParams('a=1&a=2&b=%20+%41&c&=d&é=%FF&&x=y=z'); p.set('a', '9'); p.delete('b'); p.append('n', '*-._ ~!\'()é'); p.sort(); return [String(p), p.size, [...p], p.has('c'), p.getAll('a'), String(new URLSearchParams({ k: 'v w' })), String(new URLSearchParams([['l', '1']]))]; });
  say('encode', () => [[...new TextEncoder().encode('aé€😀\ud800')], new TextEncoder().encodeInto('é€', new Uint8Array(4))]);
  for (const bytes of [[0xef, 0xbb, 0xbf, 97], [0xc3, 0xa9, 0xff, 0xe2, 0x82], [0xf0, 0x9f, 0x98, 0x80], [0xc0, 0x80], [0xed, 0xa0, 0x80], [0xf4, 0x90, 0x80, 0x80]]) {
    say('decode ' + bytes, () => new TextDecoder().decode(new Uint8Array(bytes)));
    say('fatal ' + bytes, () => new TextDecoder('utf-8', { fatal: true }).decode(new Uint8Array(bytes)));
  }
  say('stream', () => { const d = new TextDecoder(); return [d.decode(new Uint8Array([0xe2, 0x82]), { stream: true }), d.decode(new Uint8Array([0xac, 0xe2])), new TextDecoder('latin1').decode(new Uint8Array([0x7e, 0xe9])), new TextDecoder('utf-16le').decode(new Uint8Array([97, 0, 0xe9, 0]))]; });
  say('label', () => new TextDecoder('nope'));
  say('base64', () => [btoa('\xffab'), atob('/2Fi'), atob(' YQ = = '), btoa('')]);
  say('atob', () => atob('a')); say('btoa', () => btoa('€'));
  say('clone', () => { const a = { d: new Date(0), m: new Map([[1, { s: new Set(['x']) }]]), re: /a/gi, u: new Uint8Array([1, 2]), n: null, list: [1, , 3], big: 1n.toString(), e: new RangeError('r') }; a.self = a; const c = structuredClone(a);
    return [c.self === c, c !== a, c.d.getTime(), [...c.m][0][0], [...c.m.get(1).s], c.re.flags, [...c.u], 1 in c.list, c.e instanceof RangeError, c.e.message]; });
  say('clone fn', () => structuredClone({ f() {} })); say('clone symbol', () => structuredClone(Symbol('x')));
  const hex = (b) => [...new Uint8Array(b)].map((x) => x.toString(16).padStart(2, '0')).join('');
  for (const name of ['SHA-1', 'SHA-256', 'SHA-384', { name: 'sha-512' }]) out.push(hex(await crypto.subtle.digest(name, new TextEncoder().encode('abc'))));
  out.push(await crypto.subtle.digest('MD5', new Uint8Array(1)).catch((e) => e.name));
  say('random', () => { const a = crypto.getRandomValues(new Uint8Array(32)), b = crypto.getRandomValues(new Uint32Array(8)); return [a.length, new Set(a).size > 10, b.length, /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/.test(crypto.randomUUID()), crypto.randomUUID() !== crypto.randomUUID()]; });
  say('random floats', () => crypto.getRandomValues(new Float32Array(1))); say('random much', () => crypto.getRandomValues(new Uint8Array(65537)));
  const events = []; const c = new AbortController();
  c.signal.addEventListener('abort', (e) => events.push(e.type + c.signal.aborted), { once: true }); c.signal.onabort = () => events.push('on');
  const any = AbortSignal.any([new AbortController().signal, c.signal]); c.abort(); c.abort('twice');
  say('abort', () => [events.sort(), c.signal.reason.name, any.aborted, AbortSignal.abort('why').reason]);
  say('throwIfAborted', () => c.signal.throwIfAborted());
  out.push(await new Promise((resolve) => { const s = AbortSignal.timeout(5); s.addEventListener('abort', () => resolve(s.reason.name)); }));
  const order = []; await new Promise((resolve) => { setTimeout(() => { order.push('timer'); resolve(); }, 0); queueMicrotask(() => order.push('micro')); order.push('now'); });
  out.push(order.join(), typeof performance.now(), String(performance.timeOrigin > 1e12), typeof globalThis.fetch, typeof globalThis.URL);
  const blob = new Blob(['é', new Uint8Array([97]), new Blob(['b'])], { type: 'Text/Plain' }), file = new File([blob], 'n.txt', { lastModified: 1 });
  out.push([blob.size, blob.type, await blob.text(), await blob.slice(2, 3).text(), file.name, file.size, file.lastModified, file instanceof Blob].join());
  const h = new Headers({ B: '2', a: ' 1 ' }); h.append('A', '3'); h.append('set-cookie', 'x=1'); h.append('set-cookie', 'y=2');
  say('headers', () => [[...h], h.get('a'), h.get('none'), h.has('b'), h.getSetCookie()]); say('bad header', () => new Headers({ 'a b': '1' })); say('bad value', () => new Headers({ a: 'x\ny' }));
  const r = Response.json({ a: 1 }, { status: 201 }); const copy = r.clone();
  out.push([r.status, r.ok, r.headers.get('content-type'), (await r.json()).a, r.bodyUsed, await copy.text(), await r.text().catch((e) => e.name)].join());
  say('request', () => { const q = new Request('http://h/x', { method: 'post', body: new URLSearchParams({ a: 'b c' }) }); return [q.method, q.url, q.headers.get('content-type')]; });
  say('get with body', () => new Request('http://h', { body: 'x' })); say('status', () => new Response('', { status: 99 }));
  return out;
`

func TestFetch(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch r.URL.Path {
		case "/echo":
			w.Header().Set("X-Of", r.Method)
			w.WriteHeader(http.StatusTeapot)
			_, _ = fmt.Fprintf(w, "%s|%s|%s|%s", body, r.Header.Get("Content-Type"), r.Header.Get("X-Mine"), r.URL.RawQuery)
		case "/bytes":
			_, _ = w.Write([]byte{0, 255, 1})
		case "/away":
			http.Redirect(w, r, "/bytes", http.StatusFound)
		case "/slow":
			select {
			case <-r.Context().Done():
			case <-time.After(20 * time.Second):
			}
		}
	}))
	t.Cleanup(server.Close)
	onBothHosts(t, func(t *testing.T, host string) {
		j := run(t, host, workflow(`step('get', { timeout: 15000, run: async ({ signal }) => {
  const at = '`+server.URL+`';
  const echo = await fetch(at + '/echo?q=1', { method: 'POST', body: JSON.stringify({ é: 1 }), headers: { 'content-type': 'application/json', 'X-Mine': 'yes' } });
  const bytes = await fetch(new URL('/bytes', at));
  const away = await fetch(at + '/away');
  const manual = await fetch(new Request(at + '/away', { redirect: 'manual' }));
  const refused = await fetch(at + '/away', { redirect: 'error' }).catch((e) => e.name);
  const nobody = await fetch('http://127.0.0.1:1/').catch((e) => [e.name, e.message.startsWith('fetch failed'), e.cause instanceof Error]);
  const own = new AbortController(); setTimeout(() => own.abort(), 50);
  const stopped = await fetch(at + '/slow', { signal: own.signal }).catch((e) => e.name);
  const late = await fetch(at + '/slow', { signal: AbortSignal.timeout(50) }).catch((e) => e.name);
  const before = await fetch(at + '/bytes', { signal: AbortSignal.abort(new Error('mine')) }).catch((e) => e.message);
  return { echo: [echo.status, echo.ok, echo.headers.get('x-of'), await echo.text()], bytes: [...new Uint8Array(await bytes.arrayBuffer())], url: bytes.url === at + '/bytes',
    away: [away.redirected, away.url === at + '/bytes', away.status], manual: [manual.status, manual.headers.get('location')], refused, nobody, stopped, late, before };
} })`), nil).succeeded()
		equalJSON(t, j.Complete.Outputs["get"], `{"echo":[418,false,"POST","{\"é\":1}|application/json|yes|q=1"],"bytes":[0,255,1],"url":true,"away":[true,true,200],
			"manual":[302,"/bytes"],"refused":"TypeError","nobody":["TypeError",true,true],"stopped":"AbortError","late":"TimeoutError","before":"mine"}`)
	})
}
