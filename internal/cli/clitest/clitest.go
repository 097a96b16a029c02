// Package clitest runs scripts of commands. Each has a server of its own, which the command line finds by its data folder.
package clitest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"kici/internal/cli"
	"kici/internal/kit/docker/dockertest"
	"kici/internal/server"
	"kici/internal/server/servertest"
)

// Main makes the test binary kici where a script calls that, and runs the tests elsewhere.
func Main(m *testing.M) {
	run := func() {
		os.Exit(cli.Run(context.Background(), os.Args, cli.Process{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Environ: os.Environ()}))
	}
	testscript.Main(m, map[string]func(){"kici": run, "kici-admin": run})
}

// Scripts runs each script in testdata/scripts of the package that is tested.
func Scripts(t *testing.T) {
	t.Helper()
	files, err := filepath.Glob("testdata/scripts/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			home := servertest.New(t, func(s *server.Settings) { s.ProvenanceIssuer = "https://ci.example" })
			home.Start(t)
			engine := dockertest.New(t)
			engine.Images, engine.Process = []string{"box:1"}, dockertest.Here
			testscript.Run(t, testscript.Params{
				Files: []string{file},
				Setup: func(env *testscript.Env) error {
					for name, value := range map[string]string{
						"KICI_DATA_DIR": home.Settings.DataDir, "REPOS": home.Repos, "URL": home.URL(), "WS": home.AgentURL(), "TOKEN": home.Token, "XDG_DATA_HOME": env.WorkDir,
						"ENGINE":            engine.Socket,
						"GIT_CONFIG_GLOBAL": filepath.Join(env.WorkDir, "gitconfig"), "GIT_CONFIG_NOSYSTEM": "1", "USER": "pusher",
					} {
						env.Setenv(name, value)
					}
					return os.WriteFile(filepath.Join(env.WorkDir, "gitconfig"), []byte("[user]\nname = t\nemail = t@example.org\n[init]\ndefaultBranch = main\n"), 0o644)
				},
				Cmds: map[string]func(*testscript.TestScript, bool, []string){
					"exits":  exits,
					"like":   like,
					"agent":  func(ts *testscript.TestScript, _ bool, args []string) { employ(t, home, args) },
					"column": column,
					"mode":   mode,
				},
				UpdateScripts: os.Getenv("KICI_UPDATE_SCRIPTS") != "",
			})
		})
	}
}

// exits CODE COMMAND… runs a command that must end with the code.
func exits(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	code := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if code != want {
		ts.Fatalf("exit code %d, want %d", code, want)
	}
}

// What differs from run to run, with what stands for it: of the same width, so that tables stay aligned.
var varying = []struct {
	pattern *regexp.Regexp
	text    string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "00000000-0000-0000-0000-000000000000"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?Z`), "2026-01-01T00:00:00Z"},
	{regexp.MustCompile(`\b[0-9a-f]{64}\b`), strings.Repeat("f", 64)},
	{regexp.MustCompile(`\b[0-9a-f]{40}\b`), strings.Repeat("f", 40)},
	{regexp.MustCompile(`\b[0-9a-f]{7}\b`), "fffffff"},
	{regexp.MustCompile(`\b\d\.\ds`), "0.0s"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "127.0.0.1:4000"},
	{regexp.MustCompile(`kat_[0-9a-f]+`), "kat_00000000"},
}

// Steady is what a command printed without what differs from run to run.
func Steady(printed string) string {
	for _, v := range varying {
		printed = v.pattern.ReplaceAllString(printed, v.text)
	}
	return printed
}

// like FILE compares what the last command printed with a file, but for what differs from run to run.
func like(ts *testscript.TestScript, _ bool, args []string) {
	got := Steady(ts.ReadFile("stdout"))
	if want := ts.ReadFile(args[0]); got != want {
		ts.Fatalf("printed\n%s\nwant\n%s", got, want)
	}
}

// column NAME N puts the N-th column of the first row of the table that was printed last into a variable.
func column(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	lines := strings.Split(ts.ReadFile("stdout"), "\n")
	if len(lines) < 3 {
		ts.Fatalf("no table")
	}
	ts.Setenv(args[0], strings.TrimSpace(strings.Split(lines[2], " | ")[n]))
}

// mode FILE 600 checks who may read a file.
func mode(ts *testscript.TestScript, _ bool, args []string) {
	info, err := os.Stat(args[0])
	ts.Check(err)
	if got := strconv.FormatInt(int64(info.Mode().Perm()), 8); got != args[1] {
		ts.Fatalf("mode %s, want %s", got, args[1])
	}
}

// employ connects an agent that runs nothing and tells of success: agent ID [hold].
func employ(t *testing.T, home *servertest.Home, args []string) {
	home.Employ(t, &servertest.Agent{ID: args[0], Chunks: 3, Hold: len(args) > 1 && args[1] == "hold"})
	servertest.Await(t, "the agent's registration", func() bool {
		return home.Count(t, "SELECT count(*) FROM agents WHERE agent_id = $1 AND disconnected_at IS NULL", args[0]) == 1
	}, nil)
}
