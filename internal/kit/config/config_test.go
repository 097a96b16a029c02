package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

type settings struct {
	Server struct {
		Port  int    `key:"port" env:"T_PORT,T_SERVER_PORT" flag:"port" default:"4000" min:"0" max:"65535"`
		Level string `key:"logLevel" env:"T_LOG_LEVEL" default:"info" enum:"debug|info|warn|error"`
	} `key:"server"`
	Queue struct {
		Depth   int           `key:"maxDepth" env:"T_QUEUE_MAX_DEPTH" default:"1000"`
		Timeout time.Duration `key:"timeoutMs" env:"T_QUEUE_TIMEOUT_MS" default:"3600000" unit:"ms"`
	} `key:"queue"`
	Keep   time.Duration `key:"keepDays" env:"T_KEEP_DAYS" default:"30" unit:"days" min:"1"`
	Max    int64         `key:"maxBytes" env:"T_MAX_BYTES" default:"5m" unit:"bytes"`
	Ratio  float64       `key:"ratio" env:"T_RATIO" default:"0.5" max:"1"`
	Offset int           `key:"offset" env:"T_OFFSET" min:"-10"`
	Auto   bool          `key:"auto" env:"T_AUTO" default:"true"`
	Peers  []string      `key:"peers" env:"T_PEERS"`
	Modes  []string      `key:"modes" env:"T_MODES" enum:"a|b"`
	Token  string        `key:"token" env:"T_TOKEN" secret:"true" help:"A token."`
	Pin    string        `key:"pin" env:"T_PIN" secret:"true" enum:"x|y"`
	Made   string        // no setting
}

func (s *settings) Check() []Problem {
	if s.Token != "" && len(s.Peers) == 0 {
		return []Problem{{Setting: "token", Wrong: "a token needs peers", Right: "set peers"}}
	}
	return nil
}

func load(t *testing.T, yaml string, environ []string, flags map[string]string) (settings, Report, error) {
	t.Helper()
	o := Options{Environ: environ, Flags: flags, Prefix: "T_", Ignored: []string{"T_TEST_*"}, Obsolete: []string{"T_OLD"}, ObsoleteKeys: []string{"raft", "server.tls"}}
	if yaml != "" {
		o.File = filepath.Join(t.TempDir(), "c.yaml")
		if err := os.WriteFile(o.File, []byte(yaml), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var s settings
	report, err := Load(&s, o)
	return s, report, err
}

func TestLayersGoOverEachOther(t *testing.T) {
	s, report, err := load(t, "server:\n  port: 5000\n  logLevel: warn\nqueue: {maxDepth: 50, timeoutMs: 1000}\noffset: -3\nauto:\n",
		[]string{"T_PORT=6000", "T_QUEUE_MAX_DEPTH=7", "T_LOG_LEVEL=", "HOME=/root", "T_TEST_X=1", "T_OLD=1"}, map[string]string{"server.port": "7000"})
	if err != nil {
		t.Fatal(err)
	}
	if s.Server.Port != 7000 || s.Server.Level != "warn" || s.Queue.Depth != 7 || s.Queue.Timeout != time.Second || s.Offset != -3 ||
		!s.Auto || s.Keep != 30*24*time.Hour || s.Max != 5<<20 || s.Ratio != 0.5 {
		t.Errorf("got %+v", s)
	}
	want := map[string]string{"server.port": "flag --port", "server.logLevel": "c.yaml:3", "queue.maxDepth": "T_QUEUE_MAX_DEPTH", "auto": "default"}
	for key, source := range want {
		if got := filepath.Base(report.Sources[key]); got != source {
			t.Errorf("%s comes from %q, want %q", key, got, source)
		}
	}
	if diff := cmp.Diff([]string{"T_OLD has no effect"}, report.Warnings); diff != "" {
		t.Error(diff)
	}
}

func TestValues(t *testing.T) {
	tests := []struct {
		name    string
		yaml    string
		environ string
		want    func(s settings) bool
	}{
		{"list from text", "", "T_PEERS= a, ,b ", func(s settings) bool { return strings.Join(s.Peers, "|") == "a|b" }},
		{"list from a list", "peers: [a, 1, 'x,y']", "", func(s settings) bool { return strings.Join(s.Peers, "|") == "a|1|x,y" }},
		{"list from one text", "peers: a,b", "", func(s settings) bool { return len(s.Peers) == 2 }},
		{"list replaces a list", "peers: [a, b]", "T_PEERS=c", func(s settings) bool { return len(s.Peers) == 1 }},
		{"size with a suffix", "", "T_MAX_BYTES=2G", func(s settings) bool { return s.Max == 2<<30 }},
		{"size in the file", "maxBytes: 500m", "", func(s settings) bool { return s.Max == 500<<20 }},
		{"plain size", "maxBytes: 12", "", func(s settings) bool { return s.Max == 12 }},
		{"duration in words", "", "T_QUEUE_TIMEOUT_MS=1m30s", func(s settings) bool { return s.Queue.Timeout == 90*time.Second }},
		{"duration in days", "keepDays: 2", "", func(s settings) bool { return s.Keep == 48*time.Hour }},
		{"number as text stays as written", "token: 0123\npeers: a", "", func(s settings) bool { return s.Token == "0123" }},
		{"false", "auto: false", "", func(s settings) bool { return !s.Auto }},
		{"fraction", "ratio: 1e-1", "", func(s settings) bool { return s.Ratio == 0.1 }},
		{"negative", "", "T_OFFSET=-10", func(s settings) bool { return s.Offset == -10 }},
		{"several of a set", "modes: [a, b]", "", func(s settings) bool { return len(s.Modes) == 2 }},
		{"second name", "", "T_SERVER_PORT=80", func(s settings) bool { return s.Server.Port == 80 }},
	}
	for _, tt := range tests {
		s, _, err := load(t, tt.yaml, []string{tt.environ}, nil)
		if err != nil || !tt.want(s) {
			t.Errorf("%s: %+v, %v", tt.name, s, err)
		}
	}
}

func TestEveryViolationIsTold(t *testing.T) {
	_, _, err := load(t, "server:\n  port: 70000\n  logLevel: loud\n  prot: 1\nqueue: 5\nnothing: {a: 1}\npeers: {a: b}\nauto: yes\nkeepDays: 0\nratio: high\npin: planted\n",
		[]string{"T_QUEUE_MAX_DEPTH=-1", "T_QUEUE_TIMEOUT_MS=soon", "T_AUTO=1", "T_MODES=a,c", "T_MAX_BYTES=1t", "T_PROT=1", "T_QUUEE_MAX_DEPTH=1", "T_PIN=planted"}, map[string]string{"offset": "x"})
	problems, ok := errors.AsType[Problems](err)
	if !ok {
		t.Fatalf("got %v", err)
	}
	var got []string
	for line := range strings.SplitSeq(problems.Error(), "\n") {
		if i := strings.Index(line, "/"); i >= 0 {
			line = line[:i] + line[strings.LastIndex(line, "/")+1:]
		}
		got = append(got, line)
	}
	want := []string{
		`server.port from c.yaml:2: "70000" does not fit; expected a whole number from 0 to 65535`,
		`server.logLevel from c.yaml:3: "loud" does not fit; expected one of debug, info, warn, error`,
		`server.prot from c.yaml:4: there is no such setting; did you mean server.port?`,
		`queue from c.yaml:5: it holds a number; a mapping of settings is expected`,
		`nothing from c.yaml:6: there is no such setting; remove it`,
		`peers from c.yaml:7: it holds a mapping; expected a list of texts`,
		`auto from c.yaml:8: "yes" does not fit; expected true or false`,
		`keepDays from c.yaml:9: "0" does not fit; expected a whole number of days, or a duration such as 90s, 1 or more`,
		`ratio from c.yaml:10: "high" does not fit; expected a number from 0 to 1`,
		`pin from c.yaml:11: the value does not fit; expected one of x, y`,
		`queue.maxDepth from T_QUEUE_MAX_DEPTH: "-1" does not fit; expected a whole number, 0 or more`,
		`queue.timeoutMs from T_QUEUE_TIMEOUT_MS: "soon" does not fit; expected a whole number of milliseconds, or a duration such as 90s, 0 or more`,
		`maxBytes from T_MAX_BYTES: "1t" does not fit; expected a number of bytes, or one with k, m or g, 0 or more`,
		`auto from T_AUTO: "1" does not fit; expected true or false`,
		`modes from T_MODES: "c" does not fit; expected a list out of a, b`,
		`pin from T_PIN: the value does not fit; expected one of x, y`,
		`T_PROT: there is no such setting; did you mean T_PORT?`,
		`T_QUUEE_MAX_DEPTH: there is no such setting; did you mean T_QUEUE_MAX_DEPTH?`,
		`offset from flag --offset: "x" does not fit; expected a whole number, -10 or more`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestRulesAcrossSettingsNameTheSource(t *testing.T) {
	_, _, err := load(t, "", []string{"T_TOKEN=x"}, nil)
	if err == nil || err.Error() != "token from T_TOKEN: a token needs peers; set peers" {
		t.Errorf("got %v", err)
	}
}

func TestFirstSpellingWins(t *testing.T) {
	s, report, err := load(t, "", []string{"T_SERVER_PORT=1", "T_PORT=2"}, nil)
	if err != nil || s.Server.Port != 2 {
		t.Errorf("port %d, %v", s.Server.Port, err)
	}
	if diff := cmp.Diff([]string{"T_SERVER_PORT is set beside T_PORT, which counts"}, report.Warnings); diff != "" {
		t.Error(diff)
	}
}

func TestObsoleteAndLenient(t *testing.T) {
	_, report, err := load(t, "raft: {a: 1}\nserver: {tls: x}\n", nil, nil)
	if err != nil || len(report.Warnings) != 2 {
		t.Errorf("%q, %v", report.Warnings, err)
	}
	var s settings
	report, err = Load(&s, Options{Environ: []string{"T_NONE=1"}, Prefix: "T_", Lenient: true})
	if diff := cmp.Diff([]string{"T_NONE is no known setting"}, report.Warnings); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
}

func TestFilesThatAreNone(t *testing.T) {
	for name, content := range map[string]string{
		"is empty": "# nothing\n", "top level": "- a\n", "YAML": "a: [\n", "comes twice": "offset: 1\noffset: 2\n", "second document": "offset: 1\n---\noffset: 2\n",
		"not allowed": "server: &x {port: 1}\n", "deeper": "a: " + strings.Repeat("[", 100),
	} {
		_, _, err := load(t, content, nil, nil)
		if err == nil || !strings.Contains(err.Error(), name) || strings.Count(err.Error(), "\n") > 0 {
			t.Errorf("%q: %v", content, err)
		}
	}
	var s settings
	missing := filepath.Join(t.TempDir(), "none.yaml")
	if _, err := Load(&s, Options{File: missing}); err != nil {
		t.Errorf("absent default file: %v", err)
	}
	if _, err := Load(&s, Options{File: missing, FileRequired: true}); err == nil || !strings.Contains(err.Error(), missing) {
		t.Errorf("absent named file: %v", err)
	}
	if _, err := Load(&s, Options{File: t.TempDir()}); err == nil {
		t.Error("a folder is taken for a file")
	}
}

func TestDescribe(t *testing.T) {
	got := Describe(&settings{})
	if len(got) != 13 {
		t.Fatalf("%d settings", len(got))
	}
	want := Setting{Key: "server.port", Env: []string{"T_PORT", "T_SERVER_PORT"}, Flag: "port", Type: "number", Default: "4000", Min: "0", Max: "65535"}
	if diff := cmp.Diff(want, got[0]); diff != "" {
		t.Error(diff)
	}
	want = Setting{Key: "token", Env: []string{"T_TOKEN"}, Type: "text", Secret: true, Help: "A token."}
	if diff := cmp.Diff(want, got[11]); diff != "" {
		t.Error(diff)
	}
}
