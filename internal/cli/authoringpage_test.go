package cli_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/cli/clitest"
	"kici/internal/kit/docker/dockertest"
	"kici/internal/testenv"
)

var (
	pageBlock  = regexp.MustCompile("(?ms)^```(\\w+)( [a-z]+=\\S+)?\n(.*?)^```$")
	pageAnswer = regexp.MustCompile(`(?m)^\$ (.*)$`)
)

// The page for newcomers is a way that can be gone: its files are written, its commands run in their order, and what they
// print, errors too, is what stands there. @ stands for the folder of the repository.
func TestTheWayOfThePageCanBeGone(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "authoring.md"))
	if err != nil {
		t.Fatal(err)
	}
	w := newWalk(t)
	blocks := pageBlock.FindAllStringSubmatch(string(page), -1)
	commands := 0
	for _, b := range blocks {
		kind, note, text := b[1], strings.TrimSpace(b[2]), b[3]
		switch name, isFile := strings.CutPrefix(note, "file="); {
		case isFile:
			w.write(name, text)
		case kind == "console" && strings.HasPrefix(note, "needs="):
			program := strings.TrimPrefix(note, "needs=")
			t.Run("with "+program, func(t *testing.T) {
				testenv.Need(t, program)
				part := *w
				part.t = t
				part.console(text, 0)
			})
		case kind == "console":
			code, _ := strconv.Atoi(strings.TrimPrefix(note, "exit="))
			commands += w.console(text, code)
		default:
			t.Errorf("block %q %q is tried by nothing", kind, note)
		}
	}
	if commands < 12 {
		t.Errorf("%d commands", commands)
	}
}

// walk is somebody who follows the page.
type walk struct {
	t   *testing.T
	dir string
	env []string
}

func newWalk(t *testing.T) *walk {
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// The test's program is kici under that name, as in scripts. It finds its own file, so no symbolic link would do.
	bin := filepath.Join(home, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cp", self, filepath.Join(bin, "kici")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	config := filepath.Join(home, "gitconfig")
	if err := os.WriteFile(config, []byte("[user]\nname = t\nemail = t@example.org\n[init]\ndefaultBranch = main\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	engine := dockertest.New(t)
	engine.Images, engine.Process = []string{"debian:12"}, dockertest.Here
	return &walk{t: t, dir: home, env: append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"),
		"HOME="+home, "DOCKER_HOST=unix://"+engine.Socket, "KICI_RUN_DIR="+filepath.Join(home, "runs"), "GIT_CONFIG_GLOBAL="+config, "GIT_CONFIG_NOSYSTEM=1")}
}

func (w *walk) write(name, text string) {
	if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

// console runs the commands of a block, of which the last ends with the code, and tells how many there were.
func (w *walk) console(text string, code int) int {
	starts := pageAnswer.FindAllStringSubmatchIndex(text, -1)
	for i, at := range starts {
		end, want := len(text), 0
		if i+1 < len(starts) {
			end = starts[i+1][0]
		} else {
			want = code
		}
		w.command(text[at[2]:at[3]], strings.TrimPrefix(text[at[1]:end], "\n"), want)
	}
	return len(starts)
}

func (w *walk) command(line, want string, code int) {
	w.t.Helper()
	words := strings.Fields(line)
	if words[0] == "cd" {
		w.dir = filepath.Join(w.dir, words[1])
		return
	}
	cmd := exec.Command("sh", "-c", line)
	cmd.Dir, cmd.Env = w.dir, w.env
	out, err := cmd.CombinedOutput()
	exit, _ := errors.AsType[*exec.ExitError](err)
	if got := exit; err != nil && got == nil || got != nil && got.ExitCode() != code || got == nil && code != 0 {
		w.t.Errorf("%s: %v, want exit code %d", line, err, code)
	}
	text := clitest.Steady(strings.ReplaceAll(string(out), w.dir, "@"))
	if diff := cmp.Diff(want, text); diff != "" {
		w.t.Errorf("%s (-page +printed):\n%s", line, diff)
	}
}
