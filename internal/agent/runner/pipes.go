package runner

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"
)

// maxLines bounds how many lines one call of the script gets: what is read beyond waits in the pipe.
const maxLines = 1000

// pipes are what the script connects commands with: to each other, to a loop over lines, to text that it writes. Either
// end may be asked for first, since the script's calls run side by side.
type pipes struct {
	mu      sync.Mutex
	closed  bool
	halves  map[string]*pipe // of which one end is not taken yet
	writers map[string]*os.File
	readers map[string]*bufio.Reader
	files   map[string]io.Closer // of readers
}

type pipe struct {
	r, w *os.File // nil once taken
}

func newPipes() *pipes {
	return &pipes{halves: map[string]*pipe{}, writers: map[string]*os.File{}, readers: map[string]*bufio.Reader{}, files: map[string]io.Closer{}}
}

// reader takes the end of the pipe from which is read. It is the caller's to close.
func (p *pipes) reader(name string) (*os.File, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.takeLocked(name, func(h *pipe) **os.File { return &h.r })
}

// writer takes the other end.
func (p *pipes) writer(name string) (*os.File, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.takeLocked(name, func(h *pipe) **os.File { return &h.w })
}

func (p *pipes) takeLocked(name string, end func(*pipe) **os.File) (*os.File, error) {
	if p.closed {
		return nil, errors.New("the job has ended")
	}
	h := p.halves[name]
	if h == nil {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, fmt.Errorf("connect commands: %w", err)
		}
		h = &pipe{r, w}
		p.halves[name] = h
	}
	taken := end(h)
	f := *taken
	if f == nil {
		return nil, fmt.Errorf("connect commands: pipe %s is in use", name)
	}
	if *taken = nil; h.r == nil && h.w == nil {
		delete(p.halves, name)
	}
	return f, nil
}

// writeSpec is text for the stdin of a command.
type writeSpec struct {
	Pipe  string `json:"pipe"`
	Text  string `json:"text"`
	Bytes []byte `json:"bytes"` // instead of Text
	End   bool   `json:"end"`
}

// write gives a command input; it waits while the command does not read. It reports whether the command still did.
func (p *pipes) write(spec writeSpec) (bool, error) {
	p.mu.Lock()
	w := p.writers[spec.Pipe]
	var err error
	if w == nil {
		if w, err = p.takeLocked(spec.Pipe, func(h *pipe) **os.File { return &h.w }); err == nil {
			p.writers[spec.Pipe] = w
		}
	}
	p.mu.Unlock()
	if err != nil {
		return false, err
	}
	data := spec.Bytes
	if data == nil {
		data = []byte(spec.Text)
	}
	_, err = w.Write(data)
	if err != nil || spec.End {
		err = errors.Join(err, w.Close())
	}
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, fs.ErrClosed) {
		return false, nil // it has ended, or has closed its stdin: no mistake of the writer's
	}
	return err == nil, err
}

// lineSpec asks for lines of a command that the script loops over.
type lineSpec struct {
	Pipe string `json:"pipe"`
	End  bool   `json:"end"` // the loop has been left: no more is wanted
}

// lines gives the lines that are there, at least one of them, or says that there are no more.
func (p *pipes) lines(spec lineSpec) (map[string]any, error) {
	in, err := p.lineReader(spec.Pipe)
	if err != nil {
		return nil, err
	}
	if spec.End {
		return nil, p.closeReader(spec.Pipe)
	}
	var list []string
	for len(list) < maxLines {
		line, err := in.ReadString('\n')
		if err == nil || line != "" {
			list = append(list, trimLineEnd(line))
		}
		if err != nil {
			return map[string]any{"lines": list, "done": true}, p.closeReader(spec.Pipe)
		}
		if !wholeLine(in) {
			break
		}
	}
	return map[string]any{"lines": list, "done": false}, nil
}

// wholeLine tells whether another line can be had without waiting.
func wholeLine(in *bufio.Reader) bool {
	ahead, _ := in.Peek(in.Buffered()) // as much as there is: no error
	for _, c := range ahead {
		if c == '\n' {
			return true
		}
	}
	return false
}

func trimLineEnd(line string) string {
	if n := len(line); n > 0 && line[n-1] == '\n' {
		line = line[:n-1]
	}
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	return line
}

func (p *pipes) lineReader(name string) (*bufio.Reader, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if in := p.readers[name]; in != nil {
		return in, nil
	}
	r, err := p.takeLocked(name, func(h *pipe) **os.File { return &h.r })
	if err != nil {
		return nil, err
	}
	in := bufio.NewReaderSize(r, 64<<10)
	p.readers[name], p.files[name] = in, r
	return in, nil
}

func (p *pipes) closeReader(name string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.files[name]
	delete(p.readers, name)
	delete(p.files, name)
	if f == nil {
		return nil
	}
	return f.Close()
}

// close lets nothing wait for a pipe any more.
func (p *pipes) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, h := range p.halves {
		closeAll(h.r, h.w)
	}
	for _, w := range p.writers {
		w.Close()
	}
	for _, f := range p.files {
		f.Close()
	}
}
