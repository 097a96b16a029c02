//go:build unix

package runner

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// scripted starts a shell script in place of a runner.
func scripted(t *testing.T, ctx context.Context, script string) *Process {
	t.Helper()
	p, err := Start(ctx, Options{Dir: t.TempDir(), Env: []string{"PATH=" + os.Getenv("PATH")}, Command: []string{"sh", "-c", script}})
	must(t, err)
	t.Cleanup(func() { _ = p.Kill() })
	return p
}

func types(p *Process) []string {
	var list []string
	for m := range p.Messages() {
		list = append(list, m.Type)
	}
	return list
}

func TestLinesThatAreNoMessagesAreIgnored(t *testing.T) {
	t.Parallel()
	p := scripted(t, t.Context(), `echo 'plain text'; echo '{"type":"ready"}'; echo; echo '{"no":"type"}'; echo '["list"]'; printf '{"type":"last"}'`)
	if diff := cmp.Diff([]string{"ready", "last"}, types(p)); diff != "" {
		t.Error(diff)
	}
}

func TestExitSaysHowTheRunnerEnded(t *testing.T) {
	t.Parallel()
	tests := []struct {
		script string
		want   Exit
	}{
		{"exit 0", Exit{Stderr: []string{}}},
		{"echo one >&2; printf two >&2; exit 98", Exit{Code: 98, Stderr: []string{"one", "two"}}},
		{"kill -9 $$", Exit{Code: -1, Signal: "killed", Stderr: []string{}}},
	}
	for _, tt := range tests {
		p := scripted(t, t.Context(), tt.script)
		types(p)
		if diff := cmp.Diff(tt.want, p.Wait()); diff != "" {
			t.Errorf("%s: %s", tt.script, diff)
		}
	}
}

func TestLastTwentyLinesOfStderrAreKept(t *testing.T) {
	t.Parallel()
	p := scripted(t, t.Context(), "i=0; while [ $i -lt 50 ]; do echo line $i >&2; i=$((i+1)); done; head -c 100000 /dev/zero | tr '\\0' x >&2")
	types(p)
	got := p.Wait().Stderr
	if len(got) != 20 || got[0] != "line 31" || len(got[19]) != stderrLine {
		t.Errorf("%d lines, first %q, last of %d bytes", len(got), got[0], len(got[len(got)-1]))
	}
}

func TestMessagesReachTheRunner(t *testing.T) {
	t.Parallel()
	p := scripted(t, t.Context(), `read line; echo "{\"type\":\"got\",\"line\":$line}"; cat >/dev/null`)
	must(t, p.Send(Abort{Type: TypeAbort, Force: true}))
	m := <-p.Messages()
	if string(m.Raw) != `{"type":"got","line":{"type":"abort","force":true}}` {
		t.Errorf("%s", m.Raw)
	}
	must(t, p.Kill())
	if err := p.Send(Abort{Type: TypeAbort}); err == nil {
		t.Error("a dead runner took a message")
	}
	must(t, p.Kill())
}

func TestEndOfContextKillsTheRunner(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	p := scripted(t, ctx, `echo '{"type":"ready"}'; exec sleep 60`)
	<-p.Messages()
	cancel()
	if e := p.Wait(); e.Signal != "killed" {
		t.Errorf("%+v", e)
	}
	if len(types(p)) != 0 {
		t.Error("messages after the end")
	}
}

func TestKillEndsARunnerWhoseMessagesNobodyTakes(t *testing.T) {
	t.Parallel()
	p := scripted(t, t.Context(), `while echo '{"type":"log.line"}'; do :; done`)
	<-p.Messages()
	must(t, p.Kill())
}

func TestStartOfNothing(t *testing.T) {
	_, err := Start(t.Context(), Options{Command: []string{"/absent/program"}})
	if err == nil || !strings.HasPrefix(err.Error(), "start runner: ") {
		t.Error(err)
	}
}

func TestReadLines(t *testing.T) {
	tests := []struct {
		name, in string
		keepHead bool
		want     []string
	}{
		{"ends and no end", "a\n\nb", false, []string{"a", "", "b"}},
		{"long line is dropped", "123456789\nok\n", false, []string{"ok"}},
		{"long line is cut", "123456789\nok\n", true, []string{"12345678", "ok"}},
		{"just fits", "12345678\n", false, []string{"12345678"}},
		{"long last line", "ok\n123456789", false, []string{"ok"}},
		{"longer than the buffer", strings.Repeat("x", 50_000) + "\nok", false, []string{"ok"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			readLines(strings.NewReader(tt.in), 8, tt.keepHead, func(line []byte) bool { got = append(got, string(line)); return true })
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func FuzzParseMessage(f *testing.F) {
	f.Add([]byte(`{"type":"log.line","stepIndex":0,"line":"x"}`))
	f.Add([]byte(`{"type":1}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		m, ok := parseMessage(line)
		if !ok {
			return
		}
		o := newOutgoing(discard{}, func(error) {})
		_ = o.send(m)
	})
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }
