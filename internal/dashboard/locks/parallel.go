package locks

import (
	"runtime"
	"sync"
)

// minPiece is the number of rows from which a second processor is worth it.
const minPiece = 8192

// piecesOf divides n things among the processors: from and to of each piece. A piece has at least smallest things,
// unless it is the only one.
func piecesOf(n, smallest int) [][2]int {
	k := max(1, min(runtime.GOMAXPROCS(0), n/smallest))
	pieces := make([][2]int, k)
	for i := range pieces {
		pieces[i] = [2]int{n * i / k, n * (i + 1) / k}
	}
	return pieces
}

// inPieces does something with n things on all processors and returns what came out for each piece, in order. A panic
// in a piece is one of the caller's.
func inPieces[T any](n, smallest int, do func(from, to int) T) []T {
	pieces := piecesOf(n, smallest)
	out := make([]T, len(pieces))
	causes := make([]any, len(pieces))
	var others sync.WaitGroup
	for i := 1; i < len(pieces); i++ {
		others.Go(func() {
			defer func() { causes[i] = recover() }()
			out[i] = do(pieces[i][0], pieces[i][1])
		})
	}
	func() {
		defer func() { causes[0] = recover() }()
		out[0] = do(pieces[0][0], pieces[0][1])
	}()
	others.Wait()
	for _, cause := range causes {
		if cause != nil {
			panic(cause)
		}
	}
	return out
}
