package glob

import (
	"sync"
	"unicode/utf16"
	"unicode/utf8"
)

// Bounds of one match. Past rememberAfter steps a run remembers where it has been, which makes its time linear in
// program × value; where that memory would be larger than maxMemory bits it goes on without. Past maxSteps it gives up.
const (
	rememberAfter = 2048
	maxMemory     = 1 << 24
	maxSteps      = 1 << 22
)

// unit is what a subject consists of: bytes when all is ASCII, UTF-16 units otherwise, since that is what patterns count.
type unit interface{ byte | uint16 }

type place struct{ pc, pos int32 }

// machine backtracks over one subject. Machines are reused for their buffers.
type machine[T unit] struct {
	insts []inst
	in    []T
	stack []place
	steps int
	limit int
}

var (
	byteMachines = sync.Pool{New: func() any { return new(machine[byte]) }}
	wideMachines = sync.Pool{New: func() any { return new(machine[uint16]) }}
)

// match takes its steps from left.
func (p *program) match(s string, left *int) (bool, error) {
	if isASCII(s) {
		m := byteMachines.Get().(*machine[byte])
		m.in = append(m.in[:0], s...)
		ok, err := m.start(p, left)
		byteMachines.Put(m)
		return ok, err
	}
	m := wideMachines.Get().(*machine[uint16])
	m.in = m.in[:0]
	for _, r := range s {
		m.in = utf16.AppendRune(m.in, r)
	}
	ok, err := m.start(p, left)
	wideMachines.Put(m)
	return ok, err
}

func (m *machine[T]) start(p *program, left *int) (bool, error) {
	m.insts, m.stack, m.steps, m.limit = p.insts, m.stack[:0], 0, min(maxSteps, *left)
	ok := m.run(0, 0)
	if *left -= m.steps; m.steps > m.limit {
		return false, ErrBudget
	}
	return ok, nil
}

// memory is the set of places that a run has been at. A place need not be tried twice: its first visit has failed, or
// its branches are still on the stack.
type memory []uint64

func (m memory) visit(i int) (again bool) {
	again = m[i>>6]>>(i&63)&1 == 1
	m[i>>6] |= 1 << (i & 63)
	return again
}

// run tells whether the program at pc matches from pos. It gives false with steps past the limit when it has given up.
func (m *machine[T]) run(pc, pos int32) bool {
	base := len(m.stack)
	defer func() { m.stack = m.stack[:base] }()
	m.stack = append(m.stack, place{pc, pos})
	began := m.steps
	var seen memory
	for len(m.stack) > base {
		at := m.stack[len(m.stack)-1]
		m.stack = m.stack[:len(m.stack)-1]
		for alive := true; alive; {
			m.steps++
			if m.steps > m.limit {
				return false
			}
			if seen == nil && m.steps-began > rememberAfter {
				seen = m.newMemory()
			}
			if len(seen) > 0 && seen.visit(int(at.pc)*(len(m.in)+1)+int(at.pos)) {
				break
			}
			if m.insts[at.pc].op == instMatch {
				return true
			}
			at, alive = m.step(at)
		}
	}
	return false
}

func (m *machine[T]) newMemory() memory {
	bits := len(m.insts) * (len(m.in) + 1)
	if bits > maxMemory {
		return memory{}
	}
	m.steps += bits / 512 // what clearing it takes, or look-aheads could ask for gigabytes within their steps
	return make(memory, bits/64+1)
}

// step does one instruction and gives the place to go on at, or alive=false.
func (m *machine[T]) step(at place) (next place, alive bool) {
	i := &m.insts[at.pc]
	more := int(at.pos) < len(m.in)
	onward := place{at.pc + 1, at.pos + 1}
	switch i.op {
	case instChar:
		return onward, more && uint16(m.in[at.pos]) == i.unit
	case instSet:
		return onward, more && i.set.has(uint16(m.in[at.pos]))
	case instAny:
		return onward, more && !isTerminator(uint16(m.in[at.pos]))
	case instGlobstar:
		if more && m.globstarTakes(int(at.pos)) {
			m.stack = append(m.stack, place{i.x, at.pos + 1})
		}
		return place{i.y, at.pos}, true
	case instBegin:
		return place{at.pc + 1, at.pos}, at.pos == 0
	case instEnd:
		return place{at.pc + 1, at.pos}, !more
	case instSplit:
		m.stack = append(m.stack, place{i.y, at.pos})
		return place{i.x, at.pos}, true
	case instJump:
		return place{i.x, at.pos}, true
	case instLook:
		return place{i.y, at.pos}, m.run(i.x, at.pos) != i.negated
	}
	return at, false
}

// globstarTakes is (?!(?:^|\/)\.). at pos: no line terminator, and no dot that begins a segment.
func (m *machine[T]) globstarTakes(pos int) bool {
	u := m.in[pos]
	switch {
	case u == '.' && pos == 0, u == '/' && pos+1 < len(m.in) && m.in[pos+1] == '.':
		return false
	}
	return !isTerminator(uint16(u))
}

func isTerminator(u uint16) bool { return u == '\n' || u == '\r' || u == 0x2028 || u == 0x2029 }

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
