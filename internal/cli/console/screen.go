package console

import (
	"io"

	"golang.org/x/term"

	"kici/internal/cli/livetree"
	"kici/internal/core/adminwire"
)

// Screen shows a run while it goes on.
type Screen interface {
	Show(run adminwire.RunDetail, jobs []adminwire.Job)
	Line(log adminwire.LogName, text string)
	Close()
}

// Screen is a tree that is drawn again on a terminal, and a line for every change elsewhere.
func (p Process) Screen() Screen {
	fd, ok := Terminal(p.Stdout)
	if !ok || p.Env("TERM") == "dumb" {
		return livetree.NewPlain(p.Stdout)
	}
	return livetree.New(p.Stdout, livetree.Options{Size: func() (int, int) { return size(fd) }, Colour: p.Colour(p.Stdout)})
}

// size is that of the terminal, or the usual one where it cannot be told.
func size(fd int) (width, height int) {
	width, height, err := term.GetSize(fd)
	if err != nil || width < 20 || height < 4 {
		return 80, 24
	}
	return width, height
}

// Colour tells whether a stream is for eyes that want colours.
func (p Process) Colour(stream io.Writer) bool {
	_, ok := Terminal(stream)
	return ok && p.Env("NO_COLOR") == "" && p.Env("TERM") != "dumb"
}

// Silent shows nothing.
type Silent struct{}

// Show shows nothing.
func (Silent) Show(adminwire.RunDetail, []adminwire.Job) {}

// Line shows nothing.
func (Silent) Line(adminwire.LogName, string) {}

// Close has nothing to leave.
func (Silent) Close() {}
