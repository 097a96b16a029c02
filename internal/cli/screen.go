package cli

import (
	"io"

	"golang.org/x/term"

	"kici/internal/cli/livetree"
	"kici/internal/core/adminwire"
)

// screen shows a run while it goes on.
type screen interface {
	Show(run adminwire.RunDetail, jobs []adminwire.Job)
	Line(job, step, text string)
	Close()
}

// screen is a tree that is drawn again on a terminal, and a line for every change elsewhere.
func (p Process) screen() screen {
	fd, ok := terminal(p.Stdout)
	if !ok || p.env("TERM") == "dumb" {
		return livetree.NewPlain(p.Stdout)
	}
	return livetree.New(p.Stdout, livetree.Options{Size: func() (int, int) { return size(fd) }, Colour: p.colour(p.Stdout)})
}

// size is that of the terminal, or the usual one where it cannot be told.
func size(fd int) (width, height int) {
	width, height, err := term.GetSize(fd)
	if err != nil || width < 20 || height < 4 {
		return 80, 24
	}
	return width, height
}

// colour tells whether a stream is for eyes that want colours.
func (p Process) colour(stream io.Writer) bool {
	_, ok := terminal(stream)
	return ok && p.env("NO_COLOR") == "" && p.env("TERM") != "dumb"
}

// silent shows nothing.
type silent struct{}

// Show shows nothing.
func (silent) Show(adminwire.RunDetail, []adminwire.Job) {}

// Line shows nothing.
func (silent) Line(string, string, string) {}

// Close has nothing to leave.
func (silent) Close() {}
