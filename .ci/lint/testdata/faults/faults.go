// Package faults has a fault for each check, or for one of each kind of them.
package faults

import (
	"errors"
	"fmt"
	"io"
	"io/ioutil" // want SA1019
	"net/http"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/rs/zerolog/log"
)

var ErrEnd = errors.New("end")

func init() {
	io.EOF = ErrEnd // want reassign
}

func unusedFunction() {} // want unused

//go:genrate echo // want gocheckcompilerdirectives

// Hidden has a‮b in it // want bidichk
// It is recieved. // want misspell

func Body(url string) error {
	response, err := http.Get(url) // want bodyclose
	if err != nil {
		return err
	}
	fmt.Println(response.Status)
	return nil
}

func Loop(list []int, f func(func() int)) {
	for _, one := range list {
		one := one // want copyloopvar
		f(func() int { return one })
	}
}

func Durations(d time.Duration) time.Duration {
	return d * time.Second // want durationcheck
}

func Dropped() {
	os.Remove("x") // want errcheck
	os.RemoveAll("x")
	os.Remove("y") //nolint:errcheck // it may not be there
	//nolint // want nolint
	fmt.Sprint() //nolint:errcheck // there is nothing to suppress // want nolint unusedresult SA4017
}

func Asserted(err error) bool {
	_, ok := err.(*os.PathError) // want errorlint
	return ok
}

func Printed(format string) {
	fmt.Printf("%d\n", format) // want printf SA5009
}

type point struct{ x int }

func Written() {
	var p point
	p.x = 1 // want unusedwrite
}

func Nil(p *point) int {
	if p == nil {
		return p.x // want nilness
	}
	return 0
}

func Assigned() int {
	n := 1 // want ineffassign
	n = 2
	return n
}

func Made(n int) []int {
	list := make([]int, n)
	return append(list, 1) // want makezero
}

func Errors(f func() error) error {
	err := f()
	if err != nil {
		return err
	}
	if other := f(); other != nil {
		return err // want nilnesserr
	}
	return nil
}

func Converted(n int) int {
	return int(n) // want unconvert
}

func Compared(a, b error) bool {
	return reflect.DeepEqual(a, b) // want deepequalerrors
}

func Logged() {
	log.Info() // want zerologlint
}

func Static(s string) bool {
	if strings.Index(s, "a") != -1 { // want S1003
		return true
	}
	_ = errors.New("Wrong.")                                            // want ST1005
	return time.Now().Sub(time.Now()) == time.Since(time.Now()) == true // want S1002 S1012 S1024
}

func Forgotten(f func() int) int {
	n := f() // want ineffassign SA4006
	n = f()
	return n
}

func Deprecated(name string) {
	_, _ = ioutil.ReadFile(name)
}
