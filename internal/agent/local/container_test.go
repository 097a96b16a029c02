//go:build unix

package local

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/kit/docker"
	"kici/internal/kit/docker/dockertest"
)

// engine makes the runs of a bench go into containers.
func (b *bench) engine(e *dockertest.Engine) {
	b.t.Helper()
	c, err := docker.Open(b.t.Context(), e.Socket)
	must(b.t, err)
	b.Engine = c
	b.t.Cleanup(func() {
		if left := e.Left(); len(left) > 0 {
			b.t.Errorf("left containers: %v", left)
		}
	})
}

const contained = `
  job('named', { runsOn: 'linux', container: { image: 'box:1', env: { WORD: 'of the container', OVER: 'not seen' } }, env: { OVER: 'of the job' },
    steps: [step('look', async ({ $ }) => { await $` + "`echo ${'$'}WORD ${'$'}OVER; git log --format=%s; touch made`" + `; return { n: 1 }; })] }),
  job('plain', { runsOn: 'linux', needs: ['named'], steps: [step('look', async ({ log }) => { log.info('plain'); })] })`

func TestJobsRunInTheirContainers(t *testing.T) {
	b := repository(t, strings.ReplaceAll(contained, "${'$'}", "$"))
	e := dockertest.New(t)
	e.Images, e.Remote = []string{"box:1"}, []string{DefaultImage}
	var made []dockertest.Made
	e.Process = func(m dockertest.Made, in io.Reader, out, err io.Writer, s <-chan string, k <-chan struct{}) int {
		made = append(made, m)
		return dockertest.Here(m, in, out, err, s, k)
	}
	b.engine(e)
	b.Environ = append(os.Environ(), "TZ=Europe/Berlin", "USER=somebody")
	b.Jobs = 1
	b.ends(b.run(), "success named=success plain=success")
	b.says("of the container of the job", "first", "Running in a container of box:1", "Pulling image "+DefaultImage, "Running in a container of "+DefaultImage)
	if len(made) != 2 {
		t.Fatalf("%d containers", len(made))
	}
	m := made[0]
	if !strings.HasPrefix(m.Name, "kici-sandbox-"+m.Labels["kici-job-id"]+"-") || m.Labels["kici-sandbox"] != "true" {
		t.Errorf("name %s, labels %v", m.Name, m.Labels)
	}
	if got, want := m.User, fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid()); got != want {
		t.Errorf("user %s, want %s", got, want)
	}
	if diff := cmp.Diff([]string{containerKici}, m.Entrypoint); diff != "" || m.WorkingDir != containerDir {
		t.Errorf("folder %s, %s", m.WorkingDir, diff)
	}
	for _, name := range []string{"TZ=Europe/Berlin", "WORD=of the container"} {
		if !slices.Contains(m.Env, name) {
			t.Errorf("%s is not in %v", name, m.Env)
		}
	}
	for _, kv := range m.Env {
		if name, _, _ := strings.Cut(kv, "="); name == "PATH" || name == "USER" {
			t.Errorf("%s of this machine got into the container", kv)
		}
	}
}

func TestAContainerThatCannotBe(t *testing.T) {
	b := repository(t, `job('a', { runsOn: 'linux', container: 'absent:1', steps: [step('s', async () => {})] })`)
	e := dockertest.New(t)
	b.engine(e)
	r := b.run()
	b.ends(r, "failed a=failed")
	if got := text(r.Jobs[0].ErrorMessage); !strings.Contains(got, "pull absent:1: image cannot be pulled: denied") {
		t.Error(got)
	}
	e.Images, e.Refuse = []string{"absent:1"}, "/start"
	r = b.run()
	b.ends(r, "failed a=failed")
	if got := text(r.Jobs[0].ErrorMessage); !strings.Contains(got, "start container of absent:1: refused /start") {
		t.Error(got)
	}
}

func TestARunnerThatDiesInItsContainer(t *testing.T) {
	b := repository(t, `job('a', { runsOn: 'linux', container: 'box:1', steps: [step('s', async () => {})] })`)
	e := dockertest.New(t)
	e.Images = []string{"box:1"}
	e.Process = func(_ dockertest.Made, _ io.Reader, _, stderr io.Writer, _ <-chan string, _ <-chan struct{}) int {
		fmt.Fprintln(stderr, "exec format error")
		return 1
	}
	b.engine(e)
	r := b.run()
	b.ends(r, "failed a=failed")
	if got := text(r.Jobs[0].ErrorMessage); !strings.Contains(got, "exec format error") {
		t.Error(got)
	}
}

func TestACancelledContainerEndsWithItsHooks(t *testing.T) {
	b := repository(t, "job('a', { runsOn: 'linux', container: 'box:1', onCancel: async ({ log }) => { log.info('cleaned up'); }, steps: [step('s', async ({ $, log }) => { log.info('begun'); await $`sleep 60`; })] })")
	e := dockertest.New(t)
	e.Images, e.Process = []string{"box:1"}, dockertest.Here
	b.engine(e)
	ctx, cancel := context.WithCancel(t.Context())
	b.Screen.wait = "begun"
	go func() {
		<-b.Screen.seen
		cancel()
	}()
	b.ends(b.runUntil(ctx), "cancelled a=cancelled")
	b.says("cleaned up")
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
