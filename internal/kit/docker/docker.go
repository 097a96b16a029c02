// Package docker speaks to a Docker or Podman engine over its socket: as much of the Engine API as it takes to run one
// process in a container and to talk to it.
package docker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// apiVersion is the newest one that this client knows. An engine may know only older ones.
const apiVersion = "1.41"

// maxAnswer bounds an answer, in bytes; those of engines to these calls have a few thousand.
const maxAnswer = 4 << 20

// ErrNoEngine is the error of Find on a machine without one.
var ErrNoEngine = errors.New("no container engine found: start Docker or Podman, or name its socket by DOCKER_HOST=unix:///path")

// ErrNoImage is the error of a pull that cannot be: there is no such image, or it needs a login.
var ErrNoImage = errors.New("image cannot be pulled")

// Find gives the socket of the engine: that of DOCKER_HOST, else the first that is there. environ is NAME=value.
func Find(environ []string) (string, error) {
	env := map[string]string{}
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		env[name] = value
	}
	if host := env["DOCKER_HOST"]; host != "" {
		socket, ok := strings.CutPrefix(host, "unix://")
		if !ok {
			return "", fmt.Errorf("DOCKER_HOST must be a socket of this machine, as unix:///run/docker.sock, not %s: the repository is mounted from here", host)
		}
		return socket, nil
	}
	candidates := []string{"/var/run/docker.sock", "/run/podman/podman.sock"}
	if dir := env["XDG_RUNTIME_DIR"]; dir != "" {
		candidates = append(candidates, filepath.Join(dir, "docker.sock"), filepath.Join(dir, "podman", "podman.sock"))
	}
	for _, socket := range candidates {
		if conn, err := net.Dial("unix", socket); err == nil {
			conn.Close()
			return socket, nil
		}
	}
	return "", ErrNoEngine
}

// Client is a connection to one engine.
type Client struct {
	socket  string
	http    *http.Client
	version string
	info    Info
}

// Info is what an engine tells of itself.
type Info struct {
	OSType          string   // linux, windows
	Architecture    string   // x86_64, aarch64, …
	SecurityOptions []string // name=rootless among others
}

// Rootless tells that root in a container is the engine's own user outside.
func (i Info) Rootless() bool {
	for _, option := range i.SecurityOptions {
		if strings.HasPrefix(option, "name=rootless") {
			return true
		}
	}
	return false
}

// Open asks the engine behind a socket which version of the API it speaks and what it is.
func Open(ctx context.Context, socket string) (*Client, error) {
	c := &Client{socket: socket, version: apiVersion}
	c.http = &http.Client{Transport: &http.Transport{DialContext: c.dial}}
	answer, err := c.send(ctx, http.MethodGet, "/_ping", nil, nil)
	if err != nil {
		return nil, fmt.Errorf("ask the container engine at %s: %w", socket, err)
	}
	answer.Body.Close()
	if theirs := answer.Header.Get("Api-Version"); theirs != "" && older(theirs, apiVersion) {
		c.version = theirs
	}
	if err := c.call(ctx, http.MethodGet, "/info", nil, nil, &c.info); err != nil {
		return nil, fmt.Errorf("ask the container engine at %s: %w", socket, err)
	}
	return c, nil
}

// Info is what the engine has told of itself.
func (c *Client) Info() Info { return c.info }

func (c *Client) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", c.socket)
}

// older compares versions such as 1.9 and 1.41.
func older(a, b string) bool {
	major := func(v string) (int, int) {
		first, second, _ := strings.Cut(v, ".")
		x, _ := strconv.Atoi(first) // an engine that sends no number is taken for an old one
		y, _ := strconv.Atoi(second)
		return x, y
	}
	a1, a2 := major(a)
	b1, b2 := major(b)
	return a1 < b1 || a1 == b1 && a2 < b2
}

// Error is what an engine answers to a call that it does not follow.
type Error struct {
	Status  int
	Message string
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

func isStatus(err error, status int) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Status == status
}

// send makes a call. The caller closes the body of the answer.
func (c *Client) send(ctx context.Context, method, path string, query url.Values, body any) (*http.Response, error) {
	request, err := c.request(ctx, method, path, query, body)
	if err != nil {
		return nil, err
	}
	answer, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode >= 300 && answer.StatusCode != http.StatusNotModified {
		defer answer.Body.Close()
		return nil, refusal(answer)
	}
	return answer, nil
}

func (c *Client) request(ctx context.Context, method, path string, query url.Values, body any) (*http.Request, error) {
	var content io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("encode call: %w", err)
		}
		content = bytes.NewReader(raw)
	}
	u := url.URL{Scheme: "http", Host: "engine", Path: path, RawQuery: query.Encode()}
	if path != "/_ping" {
		u.Path = "/v" + c.version + path
	}
	request, err := http.NewRequestWithContext(ctx, method, u.String(), content)
	if err == nil && body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	return request, err
}

func refusal(answer *http.Response) error {
	var said struct{ Message string }
	raw, _ := io.ReadAll(io.LimitReader(answer.Body, maxAnswer)) // what cannot be read is told by the status
	if json.Unmarshal(raw, &said) != nil || said.Message == "" {
		said.Message = strings.TrimSpace(answer.Status + " " + string(raw))
	}
	return &Error{answer.StatusCode, said.Message}
}

// call makes a call and reads its answer, if one is wanted.
func (c *Client) call(ctx context.Context, method, path string, query url.Values, body, into any) error {
	answer, err := c.send(ctx, method, path, query, body)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if into == nil {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxAnswer)).Decode(into); err != nil {
		return fmt.Errorf("read the answer to %s: %w", path, err)
	}
	return nil
}

// HasImage tells whether the engine has the image.
func (c *Client) HasImage(ctx context.Context, image string) (bool, error) {
	err := c.call(ctx, http.MethodGet, "/images/"+image+"/json", nil, nil, nil)
	if isStatus(err, http.StatusNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for image %s: %w", image, err)
	}
	return true, nil
}

// Pull lets the engine fetch an image. Registries that need a login are not served: who logs in pulls by hand.
func (c *Client) Pull(ctx context.Context, image string) error {
	if !strings.Contains(image, "@") && !strings.Contains(image[strings.LastIndexByte(image, '/')+1:], ":") {
		image += ":latest" // else the engine takes all that there are
	}
	answer, err := c.send(ctx, http.MethodPost, "/images/create", url.Values{"fromImage": {image}}, nil)
	if err != nil {
		return fmt.Errorf("pull %s: %w: %w", image, ErrNoImage, err)
	}
	defer answer.Body.Close()
	// The answer is a stream of news with status 200, errors among them.
	for news := json.NewDecoder(answer.Body); ; {
		var one struct{ Error string }
		switch err := news.Decode(&one); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("pull %s: %w", image, err)
		case one.Error != "":
			return fmt.Errorf("pull %s: %w: %s", image, ErrNoImage, one.Error)
		}
	}
}

// OwnUser is the user that a container must run as to share files with this process: with a rootless engine that is root,
// who is the engine's user outside.
func (c *Client) OwnUser() string {
	if c.info.Rootless() {
		return "0:0"
	}
	return fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid())
}
