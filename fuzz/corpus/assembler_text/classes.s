	.file	"nest.cpp"
	.text
	.align 2
	.p2align 4
	.globl	_ZN1C1gEv
	.type	_ZN1C1gEv, @function
_ZN1C1gEv:
.LFB1:
	.cfi_startproc
1:	call	*__fentry__@GOTPCREL(%rip)
	addl	$1, 24(%rdi)
	call	__return__
	ret
	.cfi_endproc
.LFE1:
	.size	_ZN1C1gEv, .-_ZN1C1gEv
	.section	.text._ZN1CD2Ev,"axG",@progbits,_ZN1CD5Ev,comdat
	.align 2
	.p2align 4
	.weak	_ZN1CD2Ev
	.type	_ZN1CD2Ev, @function
_ZN1CD2Ev:
.LFB5:
	.cfi_startproc
1:	call	*__fentry__@GOTPCREL(%rip)
	leaq	16+_ZTV1C(%rip), %rax
	subq	$8, %rsp
	.cfi_def_cfa_offset 16
	movq	%rax, (%rdi)
	addq	$48, %rax
	movq	%rax, 16(%rdi)
	addq	$8, %rsp
	.cfi_def_cfa_offset 8
	call	__return__
	jmp	_ZN1AD2Ev@PLT
	.cfi_endproc
.LFE5:
	.size	_ZN1CD2Ev, .-_ZN1CD2Ev
	.weak	_ZN1CD1Ev
	.set	_ZN1CD1Ev,_ZN1CD2Ev
	.section	.text._ZN1CD0Ev,"axG",@progbits,_ZN1CD5Ev,comdat
	.align 2
	.p2align 4
	.weak	_ZN1CD0Ev
	.type	_ZN1CD0Ev, @function
_ZN1CD0Ev:
.LFB7:
	.cfi_startproc
1:	call	*__fentry__@GOTPCREL(%rip)
	leaq	16+_ZTV1C(%rip), %rax
	pushq	%rbx
	.cfi_def_cfa_offset 16
	.cfi_offset 3, -16
	movq	%rdi, %rbx
	movq	%rax, (%rdi)
	addq	$48, %rax
	movq	%rax, 16(%rdi)
	call	_ZN1AD2Ev@PLT
	movq	%rbx, %rdi
	movl	$32, %esi
	popq	%rbx
	.cfi_def_cfa_offset 8
	call	__return__
	jmp	_ZdlPvm@PLT
	.cfi_endproc
.LFE7:
	.size	_ZN1CD0Ev, .-_ZN1CD0Ev
	.section	.text.unlikely,"ax",@progbits
	.align 2
.LCOLDB0:
	.text
.LHOTB0:
	.align 2
	.p2align 4
	.globl	_ZN1C1fEi
	.type	_ZN1C1fEi, @function
_ZN1C1fEi:
.LFB0:
	.cfi_startproc
1:	call	*__fentry__@GOTPCREL(%rip)
	cmpl	$3, %esi
	jg	.L9
	movq	%rdi, %rax
	call	__return__
	ret
	.cfi_endproc
	.section	.text.unlikely
	.cfi_startproc
	.type	_ZN1C1fEi.cold, @function
_ZN1C1fEi.cold:
.LFSB0:
.L9:
	subq	$24, %rsp
	.cfi_def_cfa_offset 32
	movl	$4, %edi
	movl	%esi, 12(%rsp)
	call	__cxa_allocate_exception@PLT
	movl	12(%rsp), %esi
	xorl	%edx, %edx
	movq	%rax, %rdi
	movl	%esi, (%rax)
	leaq	_ZTIi(%rip), %rsi
	call	__cxa_throw@PLT
	.cfi_endproc
.LFE0:
	.text
	.size	_ZN1C1fEi, .-_ZN1C1fEi
	.section	.text.unlikely
	.size	_ZN1C1fEi.cold, .-_ZN1C1fEi.cold
.LCOLDE0:
	.text
.LHOTE0:
	.p2align 4
	.globl	_ZThn16_N1C1gEv
	.type	_ZThn16_N1C1gEv, @function
_ZThn16_N1C1gEv:
.LFB9:
	.cfi_startproc
1:	call	*__fentry__@GOTPCREL(%rip)
	addl	$1, 8(%rdi)
	call	__return__
	ret
	.cfi_endproc
.LFE9:
	.size	_ZThn16_N1C1gEv, .-_ZThn16_N1C1gEv
	.p2align 4
	.globl	_Z3useP1C
	.type	_Z3useP1C, @function
_Z3useP1C:
.LFB3:
	.cfi_startproc
1:	call	*__fentry__@GOTPCREL(%rip)
	pushq	%rbx
	.cfi_def_cfa_offset 16
	.cfi_offset 3, -16
	movl	24(%rdi), %eax
	leaq	_ZN1C1fEi(%rip), %rdx
	leal	1(%rax), %ebx
	movq	(%rdi), %rax
	movq	(%rax), %rax
	cmpq	%rdx, %rax
	jne	.L16
	movl	8(%rdi), %eax
	addl	%ebx, %eax
	popq	%rbx
	.cfi_remember_state
	.cfi_def_cfa_offset 8
	call	__return__
	ret
	.p2align 4,,10
	.p2align 3
.L16:
	.cfi_restore_state
	movl	$1, %esi
	call	*%rax
	movq	%rax, %rdi
	movl	8(%rdi), %eax
	addl	%ebx, %eax
	popq	%rbx
	.cfi_def_cfa_offset 8
	call	__return__
	ret
	.cfi_endproc
.LFE3:
	.size	_Z3useP1C, .-_Z3useP1C
	.weak	_ZTS1C
	.section	.rodata._ZTS1C,"aG",@progbits,_ZTS1C,comdat
	.type	_ZTS1C, @object
	.size	_ZTS1C, 3
_ZTS1C:
	.string	"1C"
	.weak	_ZTI1C
	.section	.data.rel.ro._ZTI1C,"awG",@progbits,_ZTI1C,comdat
	.align 8
	.type	_ZTI1C, @object
	.size	_ZTI1C, 56
_ZTI1C:
	.quad	_ZTVN10__cxxabiv121__vmi_class_type_infoE+16
	.quad	_ZTS1C
	.long	0
	.long	2
	.quad	_ZTI1A
	.quad	2
	.quad	_ZTI1B
	.quad	4098
	.weak	_ZTV1C
	.section	.data.rel.ro.local._ZTV1C,"awG",@progbits,_ZTV1C,comdat
	.align 8
	.type	_ZTV1C, @object
	.size	_ZTV1C, 72
_ZTV1C:
	.quad	0
	.quad	_ZTI1C
	.quad	_ZN1C1fEi
	.quad	_ZN1CD1Ev
	.quad	_ZN1CD0Ev
	.quad	_ZN1C1gEv
	.quad	-16
	.quad	_ZTI1C
	.quad	_ZThn16_N1C1gEv
	.ident	"GCC: (Debian 12.2.0-14+deb12u1) 12.2.0"
	.section	.note.GNU-stack,"",@progbits
