package process

// SeeToAdopted checks for adopted processes at once.
var SeeToAdopted = seeToAdopted
