	.file	"triv.c"
	.text
	.globl	f
	.type	f, @function
f:
.LFB0:
	.cfi_startproc
1:	call	*__fentry__@GOTPCREL(%rip)
	movl	%edi, %eax
	call	__return__
	ret
	.cfi_endproc
.LFE0:
	.size	f, .-f
	.globl	main
	.type	main, @function
main:
.LFB1:
	.cfi_startproc
1:	call	*__fentry__@GOTPCREL(%rip)
	movl	$0, %edi
	call	f
	call	__return__
	ret
	.cfi_endproc
.LFE1:
	.size	main, .-main
	.ident	"GCC: (Debian 12.2.0-14+deb12u1) 12.2.0"
	.section	.note.GNU-stack,"",@progbits
