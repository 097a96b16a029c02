package glob

// inst is one step of a program. Branches name steps by index.
type inst struct {
	op      instOp
	negated bool // of instLook
	unit    uint16
	x, y    int32
	set     *set
}

type instOp byte

const (
	instChar instOp = iota
	instSet
	instAny
	instGlobstar // take one unit and come back (x), or go on (y)
	instBegin
	instEnd
	instSplit // try x, then y
	instJump  // to x
	instLook  // the program at x matches here, or not; then go on at y
	instMatch
)

type program struct{ insts []inst }

func compileProgram(n *node) *program {
	p := &program{}
	p.emit(n)
	p.add(inst{op: instMatch})
	return p
}

func (p *program) add(i inst) int32 {
	p.insts = append(p.insts, i)
	return int32(len(p.insts) - 1)
}

func (p *program) next() int32 { return int32(len(p.insts)) }

func (p *program) emit(n *node) {
	switch n.op {
	case opChar:
		p.add(inst{op: instChar, unit: n.unit})
	case opSet:
		p.add(inst{op: instSet, set: n.set})
	case opAny:
		p.add(inst{op: instAny})
	case opBegin:
		p.add(inst{op: instBegin})
	case opEnd:
		p.add(inst{op: instEnd})
	case opGlobstar:
		at := p.next()
		p.add(inst{op: instGlobstar, x: at, y: at + 1})
	case opConcat:
		for _, sub := range n.subs {
			p.emit(sub)
		}
	case opChoice:
		p.emitChoice(n)
	case opRepeat:
		p.emitRepeat(n)
	case opLook:
		at := p.add(inst{op: instLook, negated: n.negated})
		p.insts[at].x = p.next()
		p.emit(n.subs[0])
		p.add(inst{op: instMatch})
		p.insts[at].y = p.next()
	}
}

func (p *program) emitChoice(n *node) {
	var exits []int32
	for i, sub := range n.subs {
		if i == len(n.subs)-1 {
			p.emit(sub)
			break
		}
		at := p.add(inst{op: instSplit})
		p.insts[at].x = p.next()
		p.emit(sub)
		exits = append(exits, p.add(inst{op: instJump}))
		p.insts[at].y = p.next()
	}
	for _, at := range exits {
		p.insts[at].x = p.next()
	}
}

// emitRepeat writes ?, * and +. The way out is tried first: most repeats are lazy, and either order finds a match when
// there is one.
func (p *program) emitRepeat(n *node) {
	if n.low > 0 {
		begin := p.next()
		p.emit(n.subs[0])
		at := p.add(inst{op: instSplit, y: begin})
		p.insts[at].x = p.next()
		return
	}
	at := p.add(inst{op: instSplit})
	p.insts[at].y = p.next()
	p.emit(n.subs[0])
	if n.high < 0 {
		p.add(inst{op: instJump, x: at})
	}
	p.insts[at].x = p.next()
}
