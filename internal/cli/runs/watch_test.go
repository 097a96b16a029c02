package runs_test

import (
	"bytes"
	"net"
	"os"
	"strings"
	"sync"
	"testing"

	"kici/internal/cli"
	"kici/internal/core/wire"
	"kici/internal/server"
	"kici/internal/server/servertest"
)

// screenBuffer is an output that is read while it is written.
type screenBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *screenBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *screenBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// Who looks on sees the run to its end over a restart of the server, with every line once.
func TestWatchingGoesOnOverARestart(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	listener.Close()
	home := servertest.New(t, func(s *server.Settings) { s.Port = port })
	first := home.Start(t)
	agent := home.Employ(t, &servertest.Agent{ID: "a-1", Features: []string{wire.FeatureFrameAck, wire.FeatureStartFence}, Hold: true, Chunks: 4})
	home.Push(t, "app", "main", home.Commit(t, "app", servertest.Lock("build")))
	servertest.Await(t, "the start of the job", func() bool {
		return home.Count(t, "SELECT count(*) FROM execution_jobs WHERE status = 'running'") == 1
	}, nil)
	var out, complaints screenBuffer
	ended := make(chan int, 1)
	go func() {
		ended <- cli.Run(t.Context(), []string{"kici", "admin", "runs", "watch", "latest"},
			cli.Process{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &complaints, Environ: append(os.Environ(), "KICI_DATA_DIR="+home.Settings.DataDir)})
	}()
	servertest.Await(t, "the first picture", func() bool { return strings.Contains(out.String(), "running") }, out.String)
	first.Stop()
	home.Start(t)
	agent.Release()
	if code := <-ended; code != 0 {
		t.Fatalf("exit code %d: %s%s", code, out.String(), complaints.String())
	}
	got := out.String()
	for _, want := range []string{"| line 0\n", "| line 1\n", "| line 2\n", "| line 3\n"} {
		if strings.Count(got, want) != 1 {
			t.Errorf("%q is there %d times", want, strings.Count(got, want))
		}
	}
	if !strings.Contains(got, "run ci") || !strings.Contains(got, "success") {
		t.Error(got)
	}
}
