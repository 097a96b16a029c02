// Package dockertest is a container engine for tests: it answers on a real socket as Docker does, and runs functions
// instead of images.
package dockertest

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Made is a container as it was asked for.
type Made struct {
	Name       string            `json:"-"`
	Image      string            `json:"Image"`
	Entrypoint []string          `json:"Entrypoint"`
	Cmd        []string          `json:"Cmd"`
	WorkingDir string            `json:"WorkingDir"`
	User       string            `json:"User"`
	Env        []string          `json:"Env"`
	Labels     map[string]string `json:"Labels"`
	HostConfig struct{ Binds []string }
}

// Engine answers on Socket. Its fields are set before the first call.
type Engine struct {
	Socket string
	// Version is what it says of its API; "" says 1.41.
	Version  string
	Rootless bool
	// Images are there, Remote ones can be pulled.
	Images, Remote []string
	// Refuse makes the call whose path ends so fail.
	Refuse string
	// Process is what runs in a container. killed is closed when the container is ended; signals get there before.
	Process func(m Made, stdin io.Reader, stdout, stderr io.Writer, signals <-chan string, killed <-chan struct{}) int

	mu    sync.Mutex
	made  map[string]*container
	calls []string
}

type container struct {
	Made
	conn    net.Conn
	signals chan string
	killed  chan struct{}
	kill    sync.Once
	ended   chan struct{}
	code    int
}

// New starts an engine that ends with the test.
func New(t testing.TB) *Engine {
	e := &Engine{Socket: filepath.Join(t.TempDir(), "engine.sock"), made: map[string]*container{}}
	listener, err := net.Listen("unix", e.Socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: e.routes()}}
	server.Start()
	t.Cleanup(server.Close)
	return e
}

// Left are the names of the containers that were not removed.
func (e *Engine) Left() (names []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.made {
		names = append(names, c.Name)
	}
	return names
}

// Calls are those that were made: method and path.
func (e *Engine) Calls() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.calls)
}

func (e *Engine) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /_ping", func(w http.ResponseWriter, _ *http.Request) {
		version := e.Version
		if version == "" {
			version = "1.41"
		}
		w.Header().Set("Api-Version", version)
	})
	mux.HandleFunc("GET /{v}/info", func(w http.ResponseWriter, _ *http.Request) {
		options := []string{"name=seccomp,profile=default"}
		if e.Rootless {
			options = append(options, "name=rootless")
		}
		answer(w, 200, map[string]any{"OSType": "linux", "Architecture": "x86_64", "SecurityOptions": options})
	})
	mux.HandleFunc("GET /{v}/images/{name...}", func(w http.ResponseWriter, r *http.Request) {
		e.mu.Lock()
		has := slices.Contains(e.Images, strings.TrimSuffix(r.PathValue("name"), "/json"))
		e.mu.Unlock()
		if !has {
			answer(w, 404, map[string]any{"message": "No such image"})
		}
	})
	mux.HandleFunc("POST /{v}/images/create", e.pull)
	mux.HandleFunc("POST /{v}/containers/create", e.create)
	mux.HandleFunc("POST /{v}/containers/{id}/attach", e.with(e.attach))
	mux.HandleFunc("POST /{v}/containers/{id}/start", e.with(e.start))
	mux.HandleFunc("POST /{v}/containers/{id}/kill", e.with(func(w http.ResponseWriter, r *http.Request, c *container) {
		select {
		case c.signals <- r.URL.Query().Get("signal"):
		default:
		}
	}))
	mux.HandleFunc("POST /{v}/containers/{id}/wait", e.with(func(w http.ResponseWriter, r *http.Request, c *container) {
		w.(http.Flusher).Flush()
		select {
		case <-c.ended:
			answer(w, 200, map[string]any{"StatusCode": c.code})
		case <-r.Context().Done():
		}
	}))
	mux.HandleFunc("DELETE /{v}/containers/{id}", e.with(func(w http.ResponseWriter, r *http.Request, c *container) {
		c.kill.Do(func() { close(c.killed) })
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.made, r.PathValue("id"))
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.mu.Lock()
		e.calls = append(e.calls, r.Method+" "+r.URL.Path)
		e.mu.Unlock()
		if e.Refuse != "" && strings.HasSuffix(r.URL.Path, e.Refuse) {
			answer(w, 500, map[string]any{"message": "refused " + e.Refuse})
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a client that has gone reads nothing
}

func (e *Engine) with(do func(http.ResponseWriter, *http.Request, *container)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		e.mu.Lock()
		c := e.made[r.PathValue("id")]
		e.mu.Unlock()
		if c == nil {
			answer(w, 404, map[string]any{"message": "No such container"})
			return
		}
		do(w, r, c)
	}
}

// pull answers as engines do: with a status of success, and the failure in the stream.
func (e *Engine) pull(w http.ResponseWriter, r *http.Request) {
	image := r.URL.Query().Get("fromImage")
	news := json.NewEncoder(w)
	_ = news.Encode(map[string]any{"status": "Pulling from " + image}) // a client that has gone reads nothing
	if !slices.Contains(e.Remote, image) {
		_ = news.Encode(map[string]any{"errorDetail": map[string]any{"message": "denied"}, "error": "denied"})
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.Images = append(e.Images, image)
}

func (e *Engine) create(w http.ResponseWriter, r *http.Request) {
	c := &container{signals: make(chan string, 8), killed: make(chan struct{}), ended: make(chan struct{})}
	if err := json.NewDecoder(r.Body).Decode(&c.Made); err != nil {
		answer(w, 400, map[string]any{"message": err.Error()})
		return
	}
	c.Name = r.URL.Query().Get("name")
	e.mu.Lock()
	defer e.mu.Unlock()
	id := fmt.Sprintf("id%d", len(e.made))
	e.made[id] = c
	answer(w, 201, map[string]any{"Id": id})
}

func (e *Engine) attach(w http.ResponseWriter, _ *http.Request, c *container) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		answer(w, 500, map[string]any{"message": err.Error()})
		return
	}
	e.mu.Lock()
	c.conn = conn // before the answer, which lets the client start it
	e.mu.Unlock()
	_, _ = io.WriteString(conn, "HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
}

func (e *Engine) start(w http.ResponseWriter, _ *http.Request, c *container) {
	e.mu.Lock()
	conn := c.conn
	e.mu.Unlock()
	go func() {
		defer close(c.ended)
		defer conn.Close()
		var mu sync.Mutex
		c.code = e.Process(c.Made, conn, &stream{&mu, conn, 1}, &stream{&mu, conn, 2}, c.signals, c.killed)
	}()
	w.WriteHeader(http.StatusNoContent)
}

// stream writes pieces with their heads.
type stream struct {
	mu   *sync.Mutex
	conn net.Conn
	kind byte
}

// Write implements io.Writer.
func (s *stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	head := []byte{s.kind, 0, 0, 0, 0, 0, 0, 0}
	binary.BigEndian.PutUint32(head[4:], uint32(len(p)))
	if _, err := s.conn.Write(append(head, p...)); err != nil {
		return 0, err
	}
	return len(p), nil
}
