package docker_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/kit/docker"
	"kici/internal/kit/docker/dockertest"
)

func open(t *testing.T, e *dockertest.Engine) *docker.Client {
	t.Helper()
	c, err := docker.Open(t.Context(), e.Socket)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// echo gives back what it reads, says goodbye on the other stream, and ends with a code.
func echo(_ dockertest.Made, stdin io.Reader, stdout, stderr io.Writer, signals <-chan string, killed <-chan struct{}) int {
	line := make([]byte, 6)
	_, _ = io.ReadFull(stdin, line)
	fmt.Fprintf(stdout, "got %s", line)
	select {
	case s := <-signals:
		fmt.Fprintf(stderr, "bye by %s", s)
	case <-killed:
	}
	return 7
}

func TestAProcessRunsInAContainer(t *testing.T) {
	e := dockertest.New(t)
	var made dockertest.Made
	e.Process = func(m dockertest.Made, in io.Reader, out, err io.Writer, s <-chan string, k <-chan struct{}) int {
		made = m
		return echo(m, in, out, err, s, k)
	}
	c := open(t, e)
	k, err := c.Run(t.Context(), docker.Spec{Name: "n", Image: "box", Command: []string{"/kici", "a", "b"}, Dir: "/workspace", Env: []string{"A=1"},
		User: "1:2", Binds: []string{"/x:/workspace"}, Labels: map[string]string{"l": "v"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(k.Stdin, "hello\n"); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, len("got hello\n"))
	if _, err := io.ReadFull(k.Stdout, answer); err != nil || string(answer) != "got hello\n" {
		t.Fatalf("%q, %v", answer, err)
	}
	if err := k.Signal(t.Context(), "SIGTERM"); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(k.Stderr); err != nil || string(rest) != "bye by SIGTERM" {
		t.Errorf("%q, %v", rest, err)
	}
	if code := k.Wait(); code != 7 {
		t.Errorf("exit code %d", code)
	}
	for range 2 {
		if err := k.Remove(); err != nil {
			t.Error(err)
		}
	}
	want := dockertest.Made{Name: "n", Image: "box", Entrypoint: []string{"/kici"}, Cmd: []string{"a", "b"}, WorkingDir: "/workspace", User: "1:2",
		Env: []string{"A=1"}, Labels: map[string]string{"l": "v"}}
	want.HostConfig.Binds = []string{"/x:/workspace"}
	if diff := cmp.Diff(want, made); diff != "" {
		t.Errorf("container (-want +got):\n%s", diff)
	}
}

func TestRemoveEndsWhatRuns(t *testing.T) {
	e := dockertest.New(t)
	e.Process = func(_ dockertest.Made, _ io.Reader, _, _ io.Writer, _ <-chan string, killed <-chan struct{}) int {
		<-killed
		return 137
	}
	k, err := open(t, e).Run(t.Context(), docker.Spec{Name: "n", Image: "box", Command: []string{"/kici"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(k.Stdout); err != nil {
		t.Error(err)
	}
	if left := e.Left(); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

func TestNothingIsLeftOfWhatCannotStart(t *testing.T) {
	for _, call := range []string{"/create", "/attach", "/start"} {
		e := dockertest.New(t)
		e.Refuse = call
		_, err := open(t, e).Run(t.Context(), docker.Spec{Name: "n", Image: "box", Command: []string{"/kici"}})
		if err == nil || !strings.Contains(err.Error(), "refused "+call) {
			t.Errorf("%s: %v", call, err)
		}
		if left := e.Left(); len(left) > 0 {
			t.Errorf("%s: left %v", call, left)
		}
	}
}

func TestImagesArePulledWhenTheyAreMissing(t *testing.T) {
	e := dockertest.New(t)
	e.Images, e.Remote = []string{"here:1"}, []string{"acme/app:latest", "host:5000/x:latest", "x@sha256:0"}
	c := open(t, e)
	for image, want := range map[string]bool{"here:1": true, "there:1": false} {
		if has, err := c.HasImage(t.Context(), image); err != nil || has != want {
			t.Errorf("%s: %v, %v", image, has, err)
		}
	}
	for _, image := range []string{"acme/app", "host:5000/x", "x@sha256:0"} {
		if err := c.Pull(t.Context(), image); err != nil {
			t.Error(err)
		}
	}
	if err := c.Pull(t.Context(), "secret"); !errors.Is(err, docker.ErrNoImage) || !strings.Contains(err.Error(), "pull secret:latest: image cannot be pulled: denied") {
		t.Error(err)
	}
}

func TestTheOlderVersionIsSpoken(t *testing.T) {
	for theirs, want := range map[string]string{"1.9": "/v1.9/info", "1.41": "/v1.41/info", "1.52": "/v1.41/info", "2.0": "/v1.41/info"} {
		e := dockertest.New(t)
		e.Version = theirs
		open(t, e)
		if !slices.Contains(e.Calls(), "GET "+want) {
			t.Errorf("%s: %v", theirs, e.Calls())
		}
	}
}

func TestFilesOfARootlessEngineAreRoots(t *testing.T) {
	e := dockertest.New(t)
	if got, want := open(t, e).OwnUser(), fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid()); got != want {
		t.Errorf("user %s, want %s", got, want)
	}
	e.Rootless = true
	if got := open(t, e).OwnUser(); got != "0:0" {
		t.Errorf("user %s", got)
	}
}

func TestTheEngineIsFound(t *testing.T) {
	dir := t.TempDir()
	if got, err := docker.Find([]string{"DOCKER_HOST=unix:///a/b.sock"}); err != nil || got != "/a/b.sock" {
		t.Errorf("%s, %v", got, err)
	}
	if _, err := docker.Find([]string{"DOCKER_HOST=tcp://other:2375"}); err == nil || !strings.Contains(err.Error(), "must be a socket of this machine") {
		t.Error(err)
	}
	if _, err := docker.Open(t.Context(), filepath.Join(dir, "absent.sock")); err == nil {
		t.Error("an engine that is not there was opened")
	}
	if err := os.Mkdir(filepath.Join(dir, "podman"), 0o700); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "podman", "podman.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	got, err := docker.Find([]string{"XDG_RUNTIME_DIR=" + dir})
	if err != nil || got != socket && !strings.HasPrefix(got, "/var/run/") && !strings.HasPrefix(got, "/run/") {
		t.Errorf("%s, %v", got, err)
	}
}
