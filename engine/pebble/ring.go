package pebble

// A ring is the rows that are due within ringWidth, around an anchor that has
// nothing but links and the time at which the width begins. A row in front has
// no links.
const ringWidth = 1 << 30 // ns

func ringOf(due int64) int64 { return due &^ (ringWidth - 1) }

// horizonAt gives the horizon when all that is due before until is in front.
func horizonAt(until int64) int64 { return ringOf(until-1) + ringWidth }

func newAnchor(begin int64) *row {
	anchor := &row{due: begin}
	anchor.left, anchor.right = anchor, anchor
	return anchor
}

// link puts r at the end of anchor's ring.
func (anchor *row) link(r *row) {
	r.left, r.right = anchor.left, anchor
	r.left.right, anchor.left = r, r
}

// unlinkRing takes r out of its ring, and gives the anchor of one that is empty.
func (r *row) unlinkRing() (empty *row) {
	left, right := r.left, r.right
	left.right, right.left = right, left
	r.left, r.right = nil, nil
	if left == right {
		return right
	}
	return nil
}

// join puts the rows of another ring, which has some, at the end of anchor's.
func (anchor *row) join(other *row) {
	first, last := other.right, other.left
	first.left, last.right = anchor.left, anchor
	anchor.left.right, anchor.left = first, last
}
