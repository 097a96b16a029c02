package docker

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"
)

// Spec says which process runs in which container.
type Spec struct {
	Name    string // of the container
	Image   string
	Command []string
	Dir     string
	Env     []string
	User    string   // uid:gid
	Binds   []string // <here>:<there>[:ro]
	Labels  map[string]string
}

// Container is one that has been made. Remove ends it and all that runs in it.
type Container struct {
	c    *Client
	id   string
	conn net.Conn // to its streams

	ended    chan struct{} // closed when its process has ended
	code     int           // of its end, -1 when it cannot be told; read after ended only
	stopWait context.CancelFunc

	Stdin          io.WriteCloser
	Stdout, Stderr io.ReadCloser
}

// Run makes a container, connects to the streams of its process, and starts it. After an error nothing is left of it.
func (c *Client) Run(ctx context.Context, s Spec) (*Container, error) {
	body := map[string]any{
		"Image": s.Image, "Entrypoint": s.Command[:1], "Cmd": s.Command[1:], "WorkingDir": s.Dir, "Env": s.Env, "User": s.User, "Labels": s.Labels,
		"OpenStdin": true, "StdinOnce": true, "AttachStdin": true, "AttachStdout": true, "AttachStderr": true,
		// Removed by the engine when its process ends, which it does without us: then nobody speaks to it any more.
		"HostConfig": map[string]any{"Binds": s.Binds, "AutoRemove": true},
	}
	var made struct {
		ID string `json:"Id"`
	}
	if err := c.call(ctx, http.MethodPost, "/containers/create", url.Values{"name": {s.Name}}, body, &made); err != nil {
		return nil, fmt.Errorf("create container of %s: %w", s.Image, err)
	}
	k := &Container{c: c, id: made.ID, ended: make(chan struct{})}
	err := k.attach(ctx)
	if err == nil {
		k.watch()
		err = c.call(ctx, http.MethodPost, "/containers/"+k.id+"/start", nil, nil, nil)
	}
	if err != nil {
		err = fmt.Errorf("start container of %s: %w", s.Image, err)
		return nil, errors.Join(err, k.Remove())
	}
	return k, nil
}

// attach takes over the connection of a call: from its answer on it carries the streams.
func (k *Container) attach(ctx context.Context) error {
	conn, err := k.c.dial(ctx, "", "")
	if err != nil {
		return err
	}
	k.conn = conn
	query := url.Values{"stream": {"1"}, "stdin": {"1"}, "stdout": {"1"}, "stderr": {"1"}}
	request, err := k.c.request(ctx, http.MethodPost, "/containers/"+k.id+"/attach", query, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Connection", "Upgrade")
	request.Header.Set("Upgrade", "tcp")
	if err := request.Write(conn); err != nil {
		return err
	}
	reader := bufio.NewReader(conn)
	answer, err := http.ReadResponse(reader, request)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusSwitchingProtocols && answer.StatusCode != http.StatusOK {
		defer answer.Body.Close()
		return refusal(answer)
	}
	k.Stdin = conn
	outRead, outWrite := io.Pipe()
	errRead, errWrite := io.Pipe()
	k.Stdout, k.Stderr = outRead, errRead
	go part(reader, outWrite, errWrite) // ends with the connection
	return nil
}

// part separates the streams: each piece has a head of eight bytes, whose first is the stream and whose last four are the
// length. It ends both with the connection. A stream whose reader has gone is passed over.
func part(from io.Reader, stdout, stderr *io.PipeWriter) {
	var head [8]byte
	for {
		_, err := io.ReadFull(from, head[:])
		if err == nil {
			into := stdout
			if head[0] == 2 {
				into = stderr
			}
			err = pass(into, io.LimitReader(from, int64(binary.BigEndian.Uint32(head[4:]))))
		}
		if err != nil {
			stdout.Close()
			stderr.Close()
			return
		}
	}
}

func pass(into *io.PipeWriter, piece io.Reader) error {
	_, err := io.Copy(into, piece)
	if errors.Is(err, io.ErrClosedPipe) {
		_, err = io.Copy(io.Discard, piece)
	}
	return err
}

// removeLimit bounds what is done for a container in the end, whose own context may have ended.
const removeLimit = 30 * time.Second

// watch waits for the end of the process from before its start on: later the container may be gone.
func (k *Container) watch() {
	var ctx context.Context
	ctx, k.stopWait = context.WithCancel(context.Background())
	go func() { // ends with the container, at the latest when Remove has ended the call
		defer close(k.ended)
		var end struct{ StatusCode int }
		if err := k.c.call(ctx, http.MethodPost, "/containers/"+k.id+"/wait", url.Values{"condition": {"next-exit"}}, nil, &end); err != nil {
			end.StatusCode = -1
		}
		k.code = end.StatusCode
	}()
}

// Wait waits for the end of the container's process and gives its exit code, or -1 when it cannot be told.
func (k *Container) Wait() int {
	<-k.ended
	return k.code
}

// Signal sends a signal to the container's process. One that has ended is no error.
func (k *Container) Signal(ctx context.Context, name string) error {
	err := k.c.call(ctx, http.MethodPost, "/containers/"+k.id+"/kill", url.Values{"signal": {name}}, nil, nil)
	if err != nil && !isStatus(err, http.StatusConflict) && !isStatus(err, http.StatusNotFound) {
		return fmt.Errorf("signal container: %w", err)
	}
	return nil
}

// Remove ends everything that runs in the container and removes it. It may be called again.
func (k *Container) Remove() error {
	ctx, cancel := context.WithTimeout(context.Background(), removeLimit)
	defer cancel()
	err := k.c.call(ctx, http.MethodDelete, "/containers/"+k.id, url.Values{"force": {"1"}, "v": {"1"}}, nil, nil)
	if k.conn != nil {
		k.conn.Close()
	}
	if k.stopWait != nil {
		k.stopWait()
		<-k.ended
	}
	if err != nil && !isStatus(err, http.StatusNotFound) && !isStatus(err, http.StatusConflict) { // gone, or going
		return fmt.Errorf("remove container %s: %w", k.id, err)
	}
	return nil
}
